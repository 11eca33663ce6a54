import t from "tap";
import {
  type Actor,
  planAddUser,
  planGrant,
  planPatchUser,
  planRemoveUser,
  planRevoke,
  planSetPassword,
  requireAdministrator,
  requireMayGrant,
  requireMayRevoke,
  requireRemainingOwners,
  requireUnlimitedToken,
} from "../../src/core/access/administration.ts";
import { entriesAt } from "../../src/core/access/entries.ts";
import { type Grant, readHolder } from "../../src/core/access/grant.ts";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import { type Role, roles } from "../../src/core/access/roles.ts";
import { ownGrants, type Snapshot } from "../../src/core/access/snapshot.ts";
import { runAtOnce } from "../../src/core/base/cooperative-scheduling.ts";
import { grant, groupGrant, hashWith, refusalOf, snapshotOf, user } from "./kit.ts";

const snapshot = snapshotOf(
  "root * Owner",
  "olga main Owner",
  "dora main DbAdmin",
  "bob main ReadOnly",
);
const root = { username: "root", tokenDatabase: "*" };
const dora = { username: "dora", tokenDatabase: "*" };

function newUser(username: string) {
  const passwordHash = hashWith();
  return { username, email: undefined, passwordHash, disabled: false, tokensValidAfter: 0 };
}

t.test("a user is added with its grant", async (t) => {
  const changes = planAddUser(snapshot, dora, newUser("new"), {
    database: "main",
    role: "ReadOnly",
  });
  t.strictSame(changes, [
    { kind: "add-user", user: newUser("new") },
    { kind: "add-grant", grant: { holder: readHolder("new"), database: "main", role: "ReadOnly" } },
  ]);
  t.strictSame(planAddUser(snapshot, "operator", newUser("new"), undefined), [
    { kind: "add-user", user: newUser("new") },
  ]);
});

t.test("adding an existing user is refused, without telling unauthorized callers", async (t) => {
  const add = (actor: typeof root, name: string, database: string) =>
    refusalOf(() => planAddUser(snapshot, actor, newUser(name), { database, role: "ReadOnly" }));
  t.equal(add(root, "bob", "main"), "user_exists");
  t.equal(add(dora, "bob", "other"), "no_grant");
  t.equal(add({ ...dora, tokenDatabase: "main" }, "new", "main"), "token_database");
});

t.test("adding a name that has grants needs the right to give each of them", async (t) => {
  const given = [user("root"), user("dora"), grant("root", "*", "Owner")];
  given.push(grant("dora", "main", "DbAdmin"));
  const withGhost = (...grants: string[]) => parseAccessFile([...given, ...grants].join(""), "a");
  const main = { database: "main", role: "ReadOnly" } as const;
  const add = (...grants: string[]) =>
    refusalOf(() => planAddUser(withGhost(...grants), dora, newUser("ghost"), main));
  t.equal(add(), undefined);
  t.equal(add(grant("ghost", "main", "ReadWrite")), undefined);
  t.equal(add(grant("ghost", "main", "Owner")), "role_insufficient");
  t.equal(add(grant("ghost", "other", "ReadOnly")), "no_grant");
  t.equal(add(grant("ghost", "*", "ReadOnly")), "no_grant");
});

t.test("adding a name that approves queries needs the right to grant there", async (t) => {
  const team = '[[groups]]\nname = "team"\nmembers = ["ghost"]\n';
  const given = [team, user("root"), user("dora"), grant("root", "*", "Owner")];
  given.push(grant("dora", "main", "DbAdmin"));
  const main = { database: "main", role: "ReadOnly" } as const;
  const add = (approver: string, database: string, actor = dora) => {
    const limits = `require_approval = ["DELETE"]\napprovers = ["someone", "${approver}"]`;
    const entry = grant("bob", database, "ReadWrite", limits);
    const current = parseAccessFile([...given, user("bob"), entry].join(""), "a");
    return refusalOf(() => planAddUser(current, actor, newUser("ghost"), main));
  };
  for (const approver of ["ghost", "group:team"]) {
    t.equal(add(approver, "main"), undefined);
    t.equal(add(approver, "other"), "no_grant");
    t.equal(add(approver, "*"), "no_grant");
    t.equal(add(approver, "*", root), undefined);
  }
  const boundary =
    '[[boundaries]]\nvia = "mcp"\nrequire_approval = ["DELETE"]\napprovers = ["someone", "ghost"]\n';
  const bound = parseAccessFile([...given, boundary].join(""), "a");
  t.equal(
    refusalOf(() => planAddUser(bound, dora, newUser("ghost"), main)),
    "no_grant",
  );
  t.equal(add("other", "other"), undefined, "another approver");
  const linked = parseAccessFile([...given, user("bob", 'same_as = "ghost"')].join(""), "a");
  const addLinked = (actor: typeof root) =>
    refusalOf(() => planAddUser(linked, actor, newUser("ghost"), main));
  t.strictSame([dora, root].map(addLinked), ["role_insufficient", undefined], "same_as");
});

t.test("a grant replaces the existing one, and an equal one changes nothing", async (t) => {
  const give = (role: "ReadOnly" | "ReadWrite") =>
    planGrant(snapshot, dora, { holder: readHolder("bob"), database: "main", role });
  const bob = { holder: readHolder("bob"), database: "main" };
  t.strictSame(give("ReadWrite"), [{ kind: "set-grant", grant: { ...bob, role: "ReadWrite" } }]);
  t.strictSame(give("ReadOnly"), []);
});

t.test("a pattern that overlaps another one of the user is refused", async (t) => {
  const pattern = (table: string) =>
    ({ holder: readHolder("bob"), database: "main", role: "ReadOnly", tables: [table] }) as const;
  const entry = `${grant("bob", "main", "ReadOnly")}tables = ["cust*"]\n`;
  const held = parseAccessFile(user("bob") + entry, "access.toml");
  const give = (table: string) => planGrant(held, "operator", pattern(table));
  t.throws(() => give("custom*"), {
    code: "invalid_entry",
    message: "Invalid entry: two patterns of this user match the same tables of this database",
  });
  t.strictSame(give("cust*"), [], "its own place is no other one");
  t.equal(give("custom").length, 1, "a table wins over a pattern");
});

t.test("only external users can get a grant without a record", async (t) => {
  const give = (username: string) =>
    refusalOf(() =>
      planGrant(snapshot, root, {
        holder: readHolder(username),
        database: "main",
        role: "ReadOnly",
      }),
    );
  t.equal(give("ghost"), "user_not_found");
  t.equal(give("github:ghost"), undefined);
  t.equal(give("constructor"), "user_not_found");
});

const place = (username: string, database: string) => ({
  holder: readHolder(username),
  database,
});

t.test("missing users and grants cannot be changed or revoked", async (t) => {
  const cases: [code: string, plan: () => unknown][] = [
    ["user_not_found", () => planRemoveUser(snapshot, root, "ghost")],
    ["user_not_found", () => planSetPassword(snapshot, "ghost", hashWith())],
    ["grant_not_found", () => planRevoke(snapshot, root, place("bob", "other"))],
    ["grant_not_found", () => planRevoke(snapshot, root, place("bob", "*"))],
    ["user_not_found", () => planRevoke(snapshot, root, place("ghost", "main"))],
    ["grant_not_found", () => planRevoke(snapshot, root, place("github:ghost", "main"))],
    ["user_not_found", () => planPatchUser(snapshot, root, "ghost", {})],
  ];
  for (const [code, plan] of cases) t.equal(refusalOf(plan), code, String(plan));
});

t.test("users change their own email, and only administrators disable users", async (t) => {
  const patch = (
    actor: typeof root,
    username: string,
    change: { email?: string | null; disabled?: boolean },
  ) => refusalOf(() => planPatchUser(snapshot, actor, username, change));
  t.equal(patch(dora, "dora", { email: "d@example.com" }), undefined);
  t.equal(patch(dora, "dora", { disabled: true }), "role_insufficient");
  t.equal(patch(dora, "bob", { email: "b@example.com" }), "role_insufficient");
  t.equal(patch(dora, "bob", { disabled: true }), "role_insufficient");
  t.equal(patch({ ...dora, tokenDatabase: "main" }, "dora", { email: null }), "token_database");
  t.equal(patch(root, "bob", { email: null, disabled: true }), undefined);
  t.strictSame(planPatchUser(snapshot, root, "bob", { email: null, disabled: false }), []);
  const mailed = parseAccessFile(`${user("bob", 'email = "b@example.com"')}`, "access");
  t.strictSame(planPatchUser(mailed, "operator", "bob", { email: null, disabled: false }), [
    { kind: "update-user", username: "bob", update: { email: undefined } },
  ]);
});

const own = ["root * Owner", "olga main Owner", "dora main DbAdmin", "wim main ReadWrite"];
const staff = [...own, "rita main ReadOnly"];

/** Rules as `actor target database | result | rule | grants`, with those of `staff` by default. */
function rulesOf(staff: readonly string[], table: string) {
  return table
    .trim()
    .split("\n")
    .map((line) => {
      const [act = "", expected = "", rule = "", given = "staff"] = line.split(" | ");
      const grants = given.split(", ").flatMap((grant) => (grant === "staff" ? staff : [grant]));
      return { act: act.split(" "), expected, title: `${rule} (${act})`, grants };
    });
}

/** The result of giving the target each role on a database, from Owner to ReadOnly. */
const cases = rulesOf(
  staff,
  `
root new main | ++++ | an administrator gives any role
root new * | ++++ | an administrator gives any role on *
root new fresh | ++++ | an administrator gives any role on a new database
olga new main | ++++ | an Owner gives any role on its database
olga new other | ---- | an Owner gives none on another
olga new * | ---- | an Owner gives none on *
dora new main | --++ | a DbAdmin gives the roles below its own
dora new other | ---- | a DbAdmin gives none on another
dora new * | ---- | a DbAdmin gives none on *
wim new main | ---- | a ReadWrite gives none
rita new main | ---- | a ReadOnly gives none
nobody new main | ---- | who has no grant gives none
root olga main | ++++ | an administrator lowers an Owner
olga otto main | ---- | an Owner changes no other Owner | staff, otto main Owner
olga root main | ---- | an Owner changes no administrator
olga dora main | ++++ | an Owner changes a DbAdmin
dora olga main | ---- | a DbAdmin changes no Owner
dora dirk main | ---- | a DbAdmin changes no other DbAdmin | staff, dirk main DbAdmin
dora wim main | --++ | a DbAdmin changes those below it
dora dirk main | ---- | a DbAdmin narrows no DbAdmin of * | staff, dirk * DbAdmin
dora wide main | --++ | a DbAdmin narrows a ReadWrite of * | staff, wide * ReadWrite
olga olga main | ++++ | an Owner gives up some of its own
dora dora main | --++ | a DbAdmin gives up its own, and does not raise itself
wim wim main | ---+ | a ReadWrite gives up writing
rita rita main | ---- | a ReadOnly changes nothing of its own
dirk new any | --++ | a DbAdmin of * gives the roles below it everywhere | dirk * DbAdmin, wim any ReadOnly
dirk new other | ---- | but brings no new name into the file | dirk * DbAdmin, wim any ReadOnly
dirk dirk other | ---- | not for itself either | dirk * DbAdmin, wim any ReadOnly
dirk new * | --++ | a DbAdmin of * gives them on * too | dirk * DbAdmin
dirk new main | ---- | a narrowed DbAdmin of * gives none where it is narrowed | dirk * DbAdmin, dirk main ReadOnly
dirk new * | ---- | nor on *, which reaches there | dirk * DbAdmin, dirk main ReadOnly
dirk new other | --++ | but elsewhere | dirk * DbAdmin, dirk main ReadOnly, wim other ReadOnly
dirk dirk main | ---- | nor does it undo its narrowing | dirk * DbAdmin, dirk main ReadOnly
dirk new * | --++ | an Owner of one database does not widen * by it | dirk * DbAdmin, dirk main Owner
root new * | ++++ | a narrowed administrator is one all the same on * | root * Owner, root main ReadOnly
`,
);

function mayGrant(snapshot: Snapshot, actor: Actor, grant: Grant): void {
  const held = entriesAt(ownGrants(snapshot, grant.holder), grant.database, undefined);
  requireMayGrant(snapshot, actor, grant, held);
}

/** For each role, widest first: `+` if the actor may give it to the target. */
function grants(
  grantsInForce: string[],
  [actor = "", target = "", database = ""]: string[],
  tokenDatabase = "*",
): string {
  const snapshot = snapshotOf(...grantsInForce);
  return roles
    .map((role) => {
      const grant = { holder: readHolder(target), database, role };
      const code = refusalOf(() => mayGrant(snapshot, { username: actor, tokenDatabase }, grant));
      return code === undefined ? "+" : "-";
    })
    .join("");
}

t.test("each role may give the expected roles", async (t) => {
  for (const { act, expected, title, grants: given } of cases) {
    t.equal(grants(given, act), expected, title);
  }
});

t.test("what reaches every database needs the right to grant on each of one's own", async (t) => {
  const dirk = { username: "dirk", tokenDatabase: "*" };
  const team = '[[groups]]\nname = "team"\nmembers = ["new"]\n';
  const closed = [grant("new", "*", "None"), groupGrant("team", "*", "ReadWrite")];
  const limits = ["", 'require_approval = ["DELETE"]', "expires = 2020-01-01T00:00:00Z"];
  const codes = limits.map((limit) => {
    const given = [grant("dirk", "*", "DbAdmin"), grant("dirk", "main", "DbAdmin", limit)];
    const rules = [team, user("dirk"), user("new"), ...given];
    const open = parseAccessFile(rules.join(""), "a");
    const entry = { ...place("new", "*"), role: "ReadOnly" } as const;
    const hidden = parseAccessFile([...rules, ...closed].join(""), "a");
    const approval = 'require_approval = ["DELETE"]\napprovers = ["ghost"]';
    const waiting = grant("new", "*", "ReadWrite", approval) + grant("new", "side", "ReadOnly");
    const approved = parseAccessFile([...rules, waiting].join(""), "a");
    const side = { database: "side", role: "ReadOnly" } as const;
    return [
      refusalOf(() => planGrant(open, dirk, entry)),
      refusalOf(() => planRevoke(hidden, dirk, place("new", "*"))),
      refusalOf(() => planAddUser(approved, dirk, newUser("ghost"), side)),
      refusalOf(() => planAddUser(approved, dirk, newUser("other"), side)),
    ];
  });
  const refused = new Array(3).fill("role_insufficient");
  const open = [undefined, undefined, undefined];
  t.strictSame(
    codes,
    [open, refused, refused].map((three) => [...three, undefined]),
  );
});

t.test("a role that another entry hides until it expires is judged, too", async (t) => {
  const team = '[[groups]]\nname = "team"\nmembers = ["olga"]\n';
  const hidden = (expires: string) =>
    parseAccessFile(
      [
        team,
        ...["dora", "olga"].map((one) => user(one)),
        grant("dora", "main", "DbAdmin"),
        groupGrant("team", "main", "Owner"),
        grant("olga", "main", "ReadOnly", expires),
      ].join(""),
      "a",
    );
  const entry = { ...place("olga", "main"), tables: ["t"], role: "ReadOnly" } as const;
  const until = `expires = ${new Date(Date.now() + 60_000).toISOString()}`;
  const temporary = hidden(until);
  t.equal(
    refusalOf(() => planGrant(temporary, dora, entry)),
    "role_insufficient",
  );
  t.equal(
    refusalOf(() => planGrant(hidden(""), dora, entry)),
    undefined,
  );
  const own = [
    '[[groups]]\nname = "team"\nmembers = ["dora"]\n',
    user("dora"),
    grant("dora", "main", "DbAdmin"),
    groupGrant("team", "main", "Owner"),
  ];
  const closed = groupGrant("team", "main", "None", until);
  t.equal(
    refusalOf(() =>
      planRevoke(parseAccessFile([...own, closed].join(""), "a"), dora, place("dora", "main")),
    ),
    "role_insufficient",
  );
});

t.test("an expired entry in whose place another is in force restricts nothing", async (t) => {
  const codes = ["2020-01-01T00:00:00Z", new Date(Date.now() + 60_000).toISOString()].map(
    (time) => {
      const given = [
        ...["dora", "bob"].map((one) => user(one)),
        grant("dora", "main", "DbAdmin"),
        grant("dora", "main", "None", `expires = ${time}`),
      ];
      const current = parseAccessFile(given.join(""), "a");
      return refusalOf(() =>
        planGrant(current, dora, { ...place("bob", "main"), role: "ReadOnly" }),
      );
    },
  );
  t.strictSame(codes, [undefined, "role_insufficient"]);
});

t.test("a token for one database grants only on that database", async (t) => {
  const given = [...staff, "olga other Owner", "olga * DbAdmin"];
  t.equal(grants(given, ["olga", "new", "main"], "main"), "++++");
  t.equal(grants(given, ["olga", "new", "other"], "main"), "----");
  t.equal(grants(given, ["olga", "new", "*"], "main"), "----");
  t.equal(grants(given, ["olga", "olga", "main"], "main"), "++++");
  t.equal(grants(given, ["olga", "olga", "other"], "main"), "----");
  t.equal(grants(given, ["olga", "olga", "*"], "main"), "----");
});

t.test("a refusal tells a limited token from an insufficient role", async (t) => {
  const snapshot = snapshotOf(...staff, "mia Mixed Owner");
  const code = (actor: Actor, database: string, role: Role = "ReadOnly") =>
    refusalOf(() => mayGrant(snapshot, actor, { holder: readHolder("new"), database, role }));
  t.equal(code({ username: "olga", tokenDatabase: "main" }, "other"), "token_database");
  t.equal(code({ username: "olga", tokenDatabase: "main" }, "*"), "token_database");
  t.equal(code({ username: "olga", tokenDatabase: "*" }, "other"), "no_grant");
  t.equal(code({ username: "wim", tokenDatabase: "*" }, "main"), "role_insufficient");
  t.equal(code({ username: "dora", tokenDatabase: "*" }, "main", "DbAdmin"), "role_insufficient");
});

t.test("the operator may grant everything", async (t) => {
  const snapshot = snapshotOf(...staff);
  for (const role of roles) {
    for (const database of ["main", "*", "new"]) {
      const grant = { holder: readHolder("olga"), database, role };
      t.doesNotThrow(() => mayGrant(snapshot, "operator", grant));
    }
  }
});

t.test("only the operator and administrators with an unlimited token may administer", async (t) => {
  const snapshot = snapshotOf(...staff, "dirk * DbAdmin");
  const code = (actor: Actor) => refusalOf(() => requireAdministrator(snapshot, actor));
  t.equal(code({ username: "root", tokenDatabase: "*" }), undefined);
  t.equal(code("operator"), undefined);
  t.equal(code({ username: "root", tokenDatabase: "main" }), "token_database");
  for (const username of ["olga", "dirk", "nobody"]) {
    t.equal(code({ username, tokenDatabase: "*" }), "role_insufficient", username);
  }
  t.doesNotThrow(() => requireUnlimitedToken("operator"));
});

t.test("a grant for a database that the file spells in another case is refused", async (t) => {
  const snapshot = snapshotOf(...staff);
  const root = { username: "root", tokenDatabase: "*" };
  for (const actor of [root, "operator"] as const) {
    const grant = { holder: readHolder("wim"), database: "MAIN", role: "ReadOnly" } as const;
    const code = refusalOf(() => planGrant(snapshot, actor, grant));
    t.equal(code, "database_case_conflict");
  }
});

function mayRevoke(snapshot: Snapshot, actor: Actor, username: string, database: string): void {
  const held = entriesAt(ownGrants(snapshot, readHolder(username)), database, undefined);
  requireMayRevoke(snapshot, actor, place(username, database), held);
}

const team = [
  "root * Owner",
  "olga main Owner",
  "otto main Owner",
  "dora main DbAdmin",
  "dirk main DbAdmin",
  "wim main ReadWrite",
  "rita main ReadOnly",
];

const revocations = rulesOf(
  team,
  `
root olga main | + | an administrator takes an Owner's grant
olga dora main | + | an Owner takes a DbAdmin's
olga otto main | - | an Owner takes no other Owner's
dora wim main | + | a DbAdmin takes a ReadWrite's
dora dirk main | - | a DbAdmin takes no DbAdmin's
dora olga main | - | a DbAdmin takes no Owner's
wim rita main | - | a ReadWrite takes nobody's
nobody rita main | - | who has no grant takes nobody's
rita rita main | + | one's own may be given up
olga olga main | + | an Owner gives up its own
dan dan main | - | one's own narrowing entry may not | dan * DbAdmin, dan main ReadOnly
dan dan main | + | one's own widening entry may | dan * ReadOnly, dan main DbAdmin
dora nora main | + | a DbAdmin undoes a narrowing to what it may give | staff, nora * ReadWrite, nora main ReadOnly
dora nora main | - | a DbAdmin undoes no narrowing of a DbAdmin of * | staff, nora * DbAdmin, nora main ReadOnly
dora nora main | - | a DbAdmin undoes no narrowing of an administrator | staff, nora * Owner, nora main ReadOnly
dora nora * | - | a DbAdmin of one database takes nothing on * | staff, nora * ReadOnly
`,
);

t.test("each role may revoke the expected grants", async (t) => {
  for (const { act, expected, title, grants: given } of revocations) {
    const [username = "", target = "", database = ""] = act;
    const actor = { username, tokenDatabase: "*" };
    const refusal = refusalOf(() => mayRevoke(snapshotOf(...given), actor, target, database));
    t.equal(refusal === undefined ? "+" : "-", expected, `${title}: ${refusal}`);
  }
});

t.test("a token for one database revokes only on that database", async (t) => {
  const snapshot = snapshotOf(...team, "olga other Owner", "wim other ReadOnly", "olga * ReadOnly");
  const actor = { username: "olga", tokenDatabase: "main" };
  const code = (target: string, database: string) =>
    refusalOf(() => mayRevoke(snapshot, actor, target, database));
  t.equal(code("wim", "main"), undefined);
  t.equal(code("wim", "other"), "token_database");
  t.equal(code("olga", "other"), "token_database");
  t.equal(code("olga", "*"), "token_database");
});

t.test("only administrators and the operator remove a user", async (t) => {
  const snapshot = snapshotOf(...team, "dirk * DbAdmin", "new * ReadOnly");
  const code = (actor: Actor, target: string) =>
    refusalOf(() => planRemoveUser(snapshot, actor, target));
  for (const target of ["olga", "rita", "new", "root"]) {
    t.equal(code({ username: "root", tokenDatabase: "*" }, target), undefined, target);
    t.equal(code({ username: "root", tokenDatabase: "main" }, target), "token_database");
    t.equal(code("operator", target), undefined);
    for (const username of ["olga", "dirk", "dora", "rita", "nobody"]) {
      t.equal(code({ username, tokenDatabase: "*" }, target), "role_insufficient", username);
    }
  }
});

const disabled = `password_hash = "${hashWith()}"\ndisabled = true`;
const others = user("other") + grant("other", "main", "ReadOnly");

/** The refusal of a change from one file to another. */
function succession(before: string, after: string): string | undefined {
  const snapshot = (text: string) => parseAccessFile(text + others, "access.toml");
  return refusalOf(() => runAtOnce(requireRemainingOwners(snapshot(before), snapshot(after))));
}

const rooted = user("root") + grant("root", "*", "Owner");
const second = user("second") + grant("second", "*", "Owner");
const olga = user("olga") + grant("olga", "sales", "Owner");

t.test("the last administrator cannot be removed", async (t) => {
  t.equal(succession(rooted, ""), "last_administrator", "not removed");
  t.equal(succession(rooted, user("root")), "last_administrator", "grant not revoked");
  t.equal(succession(rooted, user("root") + grant("root", "*", "DbAdmin")), "last_administrator");
  const off = user("root", disabled) + grant("root", "*", "Owner");
  t.equal(succession(rooted, off), "last_administrator", "not disabled");
  const mute = user("root", "") + grant("root", "*", "Owner");
  t.equal(succession(rooted, mute), "last_administrator", "password not taken away");
});

t.test("one of two administrators can be removed", async (t) => {
  t.equal(succession(rooted + second, second), undefined);
  t.equal(succession(rooted + second, user("second") + rooted), undefined);
});

t.test("an administrator who cannot log in does not count", async (t) => {
  const idle = [
    user("idle", disabled) + grant("idle", "*", "Owner"),
    user("idle", "") + grant("idle", "*", "Owner"),
    grant("idle", "*", "Owner"),
    grant("github:idle", "*", "Owner"),
    user("github:idle") + grant("github:idle", "*", "Owner"),
    user("idle") + grant("idle", "*", "DbAdmin"),
    user("idle") + grant("idle", "main", "Owner"),
  ];
  for (const left of idle) t.equal(succession(rooted + left, left), "last_administrator", left);
});

t.test("a file without an administrator needs none", async (t) => {
  const idle = user("idle", disabled) + grant("idle", "*", "Owner");
  t.equal(succession(idle, ""), undefined);
});

t.test("without a better one, an administrator without a password is protected", async (t) => {
  const machine = user("machine", "") + grant("machine", "*", "Owner");
  const external = grant("github:gil", "*", "Owner");
  for (const last of [machine, external]) t.equal(succession(last, ""), "last_administrator");
  t.equal(succession(machine + external, external), undefined);
  t.equal(succession(machine, rooted), undefined);
});

t.test("the last Owner of a database stays, regardless of entries for *", async (t) => {
  const remaining = [
    "",
    user("olga"),
    user("olga") + grant("olga", "sales", "DbAdmin"),
    user("olga", disabled) + grant("olga", "sales", "Owner"),
  ];
  for (const left of remaining)
    t.equal(succession(rooted + olga, rooted + left), "last_owner", left);
});

t.test("one of two Owners can be removed, if the other is on the same database", async (t) => {
  const otto = user("otto") + grant("otto", "sales", "Owner");
  t.equal(succession(rooted + olga + otto, rooted + otto), undefined);
  const elsewhere = user("otto") + grant("otto", "other-sales", "Owner");
  t.equal(succession(rooted + olga + elsewhere, rooted + elsewhere), "last_owner");
});

t.test("an Owner needs no password, but must not be disabled or unknown", async (t) => {
  const remaining: [string, string | undefined][] = [
    [user("otto", "") + grant("otto", "sales", "Owner"), undefined],
    [grant("github:otto", "sales", "Owner"), undefined],
    [user("otto", disabled) + grant("otto", "sales", "Owner"), "last_owner"],
    [grant("otto", "sales", "Owner"), "last_owner"],
  ];
  for (const [otto, refusal] of remaining) {
    t.equal(succession(rooted + olga + otto, rooted + otto), refusal, otto);
  }
});

t.test("changes that remove no Owner are allowed", async (t) => {
  t.equal(succession(rooted + olga, rooted + olga + second), undefined);
  t.equal(succession(rooted, rooted + olga), undefined);
  const renewed = user("root", `password_hash = "${hashWith("m=128,t=1,p=1")}"`);
  t.equal(succession(rooted, renewed + grant("root", "*", "Owner")), undefined);
});
