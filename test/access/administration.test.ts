import t from "tap";
import {
  planAddUser,
  planGrant,
  planPatchUser,
  planRemoveUser,
  planRevoke,
  planSetPassword,
} from "../../src/access/administration.ts";
import { parseAccessFile } from "../../src/access/parse.ts";
import { grant, hashWith, refusalOf, snapshotOf, user } from "./kit.ts";

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

t.test("a user is added with its grant", (t) => {
  const changes = planAddUser(snapshot, dora, newUser("new"), {
    database: "main",
    role: "ReadOnly",
  });
  t.strictSame(changes, [
    { kind: "add-user", user: newUser("new") },
    { kind: "add-grant", grant: { username: "new", database: "main", role: "ReadOnly" } },
  ]);
  t.strictSame(planAddUser(snapshot, "operator", newUser("new"), undefined), [
    { kind: "add-user", user: newUser("new") },
  ]);
  t.end();
});

t.test("a user that exists is not added again, and who may not grant learns nothing of it", (t) => {
  const add = (actor: typeof root, name: string, database: string) =>
    refusalOf(() => planAddUser(snapshot, actor, newUser(name), { database, role: "ReadOnly" }));
  t.equal(add(root, "bob", "main"), "user_exists");
  t.equal(add(dora, "bob", "other"), "no_grant");
  t.equal(add({ ...dora, tokenDatabase: "main" }, "new", "main"), "token_database");
  t.end();
});

t.test("a name that has grants already takes the right to give each of them", (t) => {
  const given = [
    user("root"),
    user("dora"),
    grant("root", "*", "Owner"),
    grant("dora", "main", "DbAdmin"),
  ];
  const withGhost = (...grants: string[]) => parseAccessFile([...given, ...grants].join(""), "a");
  const add = (...grants: string[]) =>
    refusalOf(() =>
      planAddUser(withGhost(...grants), dora, newUser("ghost"), {
        database: "main",
        role: "ReadOnly",
      }),
    );
  t.equal(add(), undefined);
  t.equal(add(grant("ghost", "main", "ReadWrite")), undefined);
  t.equal(add(grant("ghost", "main", "Owner")), "role_insufficient");
  t.equal(add(grant("ghost", "other", "ReadOnly")), "no_grant");
  t.equal(add(grant("ghost", "*", "ReadOnly")), "no_grant");
  t.end();
});

t.test("a grant takes the place of the one held, and one held already changes nothing", (t) => {
  const give = (role: "ReadOnly" | "ReadWrite") =>
    planGrant(snapshot, dora, { username: "bob", database: "main", role });
  const bob = { username: "bob", database: "main" };
  t.strictSame(give("ReadWrite"), [{ kind: "set-grant", grant: { ...bob, role: "ReadWrite" } }]);
  t.strictSame(give("ReadOnly"), []);
  t.end();
});

t.test("a pattern that fits tables of another one of the user is refused, and says so", (t) => {
  const pattern = (table: string) =>
    ({ username: "bob", database: "main", role: "ReadOnly", tables: [table] }) as const;
  const entry = `${grant("bob", "main", "ReadOnly")}tables = ["cust*"]\n`;
  const held = parseAccessFile(user("bob") + entry, "access.toml");
  const give = (table: string) => planGrant(held, "operator", pattern(table));
  t.throws(() => give("custom*"), {
    code: "invalid_entry",
    message: "Invalid entry: two patterns of this user fit the same tables of this database",
  });
  t.strictSame(give("cust*"), [], "its own place is no other one");
  t.equal(give("custom").length, 1, "a table wins over a pattern");
  t.end();
});

t.test("a name without a record is granted nothing, but for an external one", (t) => {
  const give = (username: string) =>
    refusalOf(() => planGrant(snapshot, root, { username, database: "main", role: "ReadOnly" }));
  t.equal(give("ghost"), "user_not_found");
  t.equal(give("github:ghost"), undefined);
  t.equal(give("constructor"), "user_not_found");
  t.end();
});

t.test("what is not there cannot be changed or taken away", (t) => {
  t.equal(
    refusalOf(() => planRemoveUser(snapshot, root, "ghost")),
    "user_not_found",
  );
  t.equal(
    refusalOf(() => planSetPassword(snapshot, "ghost", hashWith())),
    "user_not_found",
  );
  t.equal(
    refusalOf(() => planRevoke(snapshot, root, "bob", "other")),
    "grant_not_found",
  );
  t.equal(
    refusalOf(() => planRevoke(snapshot, root, "bob", "*")),
    "grant_not_found",
  );
  t.equal(
    refusalOf(() => planRevoke(snapshot, root, "ghost", "main")),
    "user_not_found",
  );
  t.equal(
    refusalOf(() => planRevoke(snapshot, root, "github:ghost", "main")),
    "grant_not_found",
  );
  t.equal(
    refusalOf(() => planPatchUser(snapshot, root, "ghost", {})),
    "user_not_found",
  );
  t.end();
});

t.test("an email is changed by its owner or an administrator, a state by the latter alone", (t) => {
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
  t.end();
});
