import assert from "node:assert/strict";
import fc from "fast-check";
import { parse } from "smol-toml";
import t from "tap";
import { editText } from "../../src/core/access/edit.ts";
import { groupOf, holderText, readHolder } from "../../src/core/access/grant.ts";
import { applyChanges, type Change, changedHolder } from "../../src/core/access/record-change.ts";
import type { AccessRecords } from "../../src/core/access/records.ts";
import { outline } from "../../src/core/base/toml.ts";
import {
  database,
  documents,
  type Model,
  members,
  role,
  type UserFields,
  userFields,
} from "./documents.ts";
import { parseRecords } from "./kit.ts";

function edit(text: string, ...changes: Change[]): string {
  const records = parseRecords(text, "access.toml");
  return editText(text, records, applyChanges(records, changes));
}

const file = `# Who may do what.
# Ask Olga before you change this.

[[users]]            # the boss
username = "root"    # do not rename
email = 'root@example.com'

# machines
[[users]]
  username = "backup"
  disabled = true   # until March

[[acl]]
username = "root"
database = "*"
role     = "Owner"   # all of it

[[acl]]
username = "backup"
database = "main"
role = "ReadOnly"
# the end`;

const bob = {
  username: "bob",
  email: "bob@example.com",
  passwordHash: undefined,
  disabled: false,
  tokensValidAfter: 0,
};

t.test("a changed value is changed in its place", async (t) => {
  const raised = edit(file, {
    kind: "set-grant",
    grant: { holder: readHolder("backup"), database: "main", role: "Owner" },
  });
  t.equal(raised, file.replace('role = "ReadOnly"', 'role = "Owner"'));
  const lowered = edit(file, {
    kind: "set-grant",
    grant: { holder: readHolder("root"), database: "*", role: "DbAdmin" },
  });
  t.equal(lowered, file.replace('"Owner"   # all', '"DbAdmin"   # all'));
});

t.test("keys are set, added and removed, and comments stay", async (t) => {
  const update = { email: undefined, disabled: true, tokensValidAfter: 7 };
  t.equal(
    edit(file, { kind: "update-user", username: "root", update }),
    file.replace("email = 'root@example.com'\n", "disabled = true\ntokens_valid_after = 7\n"),
  );
  t.equal(
    edit(file, {
      kind: "update-user",
      username: "backup",
      update: { disabled: false, email: "b@c" },
    }),
    file.replace("  disabled = true   # until March\n", '# until March\n  email = "b@c"\n'),
    "in the indentation of the keys around it",
  );
});

t.test("a new record follows the last of its kind, and its defaults are not written", async (t) => {
  const grant = { holder: readHolder("bob"), database: "main", role: "ReadOnly" } as const;
  const edited = edit(file, { kind: "add-user", user: bob }, { kind: "add-grant", grant });
  t.equal(
    edited,
    file
      .replace("# until March\n", '$&\n[[users]]\nusername = "bob"\nemail = "bob@example.com"\n')
      .replace(
        "\n# the end",
        '\n\n[[acl]]\nusername = "bob"\ndatabase = "main"\nrole = "ReadOnly"$&',
      ),
  );
});

t.test("a file without grants or without a final newline can be added to", async (t) => {
  const grant = { holder: readHolder("root"), database: "*", role: "Owner" } as const;
  const added = '\n\n[[acl]]\nusername = "root"\ndatabase = "*"\nrole = "Owner"\n';
  const only = '[[users]]\nusername = "root"';
  t.equal(edit(only, { kind: "add-grant", grant }), only + added);
  t.equal(edit(`${only} # last`, { kind: "add-grant", grant }), `${only} # last${added}`);
  const update = { disabled: true };
  const disabled = edit(only, { kind: "update-user", username: "root", update });
  t.equal(disabled, `${only}\ndisabled = true`);
});

t.test("elements of an array are added and removed, and comments between them stay", async (t) => {
  const members = (text: string, ...wanted: string[]) => {
    const group = `[[groups]]\nname = "team"\nmembers = ${text} # all of them\n\n[[users]]\nusername = "ana"\n`;
    const edited = edit(group, { kind: "update-group", group: { name: "team", members: wanted } });
    return edited.slice(group.indexOf(text), edited.indexOf(" # all of them"));
  };
  const plain = '["ana", "bob", "cleo"]';
  t.equal(members(plain, "ana", "cleo", "dan"), '["ana", "cleo", "dan"]');
  t.equal(members(plain, "bob"), '["bob"]');
  t.equal(members(plain), "[]");
  t.equal(members(plain, "cleo", "ana"), '["cleo", "ana"]', "another order is written anew");
  const commented = `[ # who asks
  "ana",   # the analyst

  # on leave:
  "bob", "cleo",   # until March
]`;
  t.equal(members(commented, "ana", "cleo"), commented.replace('"bob", ', ""));
  t.equal(members(commented, "ana", "bob"), commented.replace(' "cleo",', ""));
  t.equal(members(commented, "bob", "cleo"), commented.replace('"ana",   ', ""));
  t.equal(
    members(commented, "ana", "bob", "cleo", "dan", "eve"),
    commented.replace("\n]", '\n  "dan",\n  "eve",\n]'),
  );
  const commaFirst = '[\n  "ana"\n  , "bob"\n  , "cleo"\n]';
  for (const wanted of [["bob", "dan"], ["ana", "bob", "dan"], ["ana"], []]) {
    t.strictSame(JSON.parse(members(commaFirst, ...wanted)), wanted);
  }
  const mixed = '[\n"ana", "bob" # b\n, "cleo",]';
  t.strictSame(JSON.parse(members(mixed, "ana", "dan")), ["ana", "dan"]);
  const open = '[\n  "ana",\n  "bob"   # last\n]';
  t.equal(members(open, "ana"), '[\n  "ana"\n  # last\n]');
  t.equal(members(open, "bob", "dan"), '[\n  "bob",   # last\n  "dan"\n]');
  t.equal(
    members(open.replaceAll("\n", "\r\n"), "bob", "dan"),
    '[\r\n  "bob",   # last\r\n  "dan"\r\n]',
  );
});

t.test("conditions of a filter are removed as elements of an array", async (t) => {
  const text = `[[acl]]
username = "rita"
database = "main"
role = "ReadOnly"
row_filter = [
  { column = "tenant", cmp = "=", value = "@tenant" },   # never remove this
  { column = "level", cmp = "IN", value = [1, 2] },
]
`;
  const place = { holder: readHolder("rita"), database: "main", role: "ReadOnly" } as const;
  const rowFilter = [{ column: "tenant", cmp: "=", value: "@tenant" }] as const;
  const edited = edit(text, { kind: "set-grant", grant: { ...place, rowFilter } });
  t.equal(edited, text.replace(/ +\{ column = "level".*\n/, ""));
});

t.test("a file of inline arrays is not edited", async (t) => {
  const texts = [
    'users = [{ username = "root" }]\n',
    'users = []\n[[acl]]\nusername = "root"\ndatabase = "*"\nrole = "Owner"\n',
    'acl = []\n[[users]]\nusername = "root"\n',
  ];
  for (const text of texts) {
    const act = () => edit(text, { kind: "add-user", user: bob });
    t.throws(act, { message: /write it as \[\[users]] and \[\[acl]] tables/ });
  }
});

t.test("any text is written so that it reads back the same", async (t) => {
  const pieces = fc.constantFrom(
    '"',
    "'",
    "\\",
    "\n",
    "\r",
    "\t",
    "]]",
    "#",
    "\x7f",
    "\0",
    "\u0085",
    "é",
  );
  const text = fc
    .array(fc.oneof(pieces, fc.string({ unit: "grapheme" })))
    .map((parts) => parts.join(""))
    .filter((joined) => joined.isWellFormed());
  fc.assert(
    fc.property(text, (email) => {
      const edited = edit(file, { kind: "add-user", user: { ...bob, email } });
      const { users } = parse(edited);
      return (
        Array.isArray(users) &&
        users.length === 3 &&
        JSON.stringify(users[2]) === JSON.stringify({ username: "bob", email })
      );
    }),
    { numRuns: 500 },
  );
  t.pass();
});

const narrowed = `[[users]]
username = "rita"
# who she is
[users.attributes]
tenant = "acme" # the tenant

[[acl]]
username = "rita"
database = "main"
role = "ReadWrite" # for now
tables = ["tickets"] # alone
columns = [
  "id", # the key
  "status",
]
max_rows = 200

[[acl]]
username = "rita"
database = "main"
role = "ReadOnly"

# everybody's model reads
[[boundaries]]
via = "mcp"
role = "ReadOnly"
`;

const tickets = {
  holder: readHolder("rita"),
  database: "main",
  role: "ReadWrite",
  tables: ["tickets"],
  columns: ["id", "status"],
} as const;

t.test("replacing the last entry keeps the blank lines", async (t) => {
  const whole = { holder: readHolder("rita"), database: "main" } as const;
  const edited = edit(
    narrowed,
    { kind: "remove-grant", grant: { ...whole, role: "ReadOnly" } },
    { kind: "add-grant", grant: { ...whole, role: "ReadWrite", expires: Date.UTC(2126, 0) } },
  );
  const lasting = 'role = "ReadOnly"\n\n';
  const ending = 'role = "ReadWrite"\nexpires = 2126-01-01T00:00:00Z\n\n';
  t.equal(edited.replace(".000Z", "Z"), narrowed.replace(lasting, ending));
});

t.test("only the changed keys of an entry with limits are written", async (t) => {
  const edited = edit(narrowed, {
    kind: "set-grant",
    grant: {
      ...tickets,
      maxRows: 100,
      rowFilter: [{ column: "tenant", cmp: "=", value: "@tenant" }],
      maxChanges: 2,
    },
  });
  t.equal(
    edited,
    narrowed.replace(
      "max_rows = 200\n",
      'max_rows = 100\nrow_filter = [{ column = "tenant", cmp = "=", value = "@tenant" }]\nmax_changes = 2\n',
    ),
  );
  const { columns: _, ...open } = tickets;
  const opened = edit(narrowed, { kind: "set-grant", grant: { ...open, role: "ReadOnly" } });
  t.match(opened, 'role = "ReadOnly" # for now\ntables = ["tickets"] # alone\n\n[[acl]]');
});

t.test("an entry with limits is added and removed exactly", async (t) => {
  const expires = Date.UTC(2026, 11, 24, 18);
  const grant = { ...tickets, tables: ["customer_*"], expires };
  const added = edit(narrowed, { kind: "add-grant", grant });
  t.match(
    added,
    'tables = ["customer_*"]\ncolumns = ["id", "status"]\nexpires = 2026-12-24T18:00:00.000Z\n',
  );
  const removed = edit(narrowed, { kind: "remove-grant", grant: tickets });
  t.notMatch(removed, "tickets");
  t.match(removed, 'database = "main"\nrole = "ReadOnly"\n\n# everybody');
  t.match(removed, "# the tenant");
});

t.test("attributes go with their user, and new keys precede them", async (t) => {
  const email = edit(narrowed, {
    kind: "update-user",
    username: "rita",
    update: { email: "r@example.com" },
  });
  t.match(email, 'username = "rita"\nemail = "r@example.com"\n# who she is\n[users.attributes]\n');
  const gone = edit(narrowed, { kind: "remove-user", username: "rita" });
  t.notMatch(gone, "[users.attributes]");
  t.notMatch(gone, "acl");
  t.match(gone, "[[boundaries]]");
});

/** Which lines of an access file belong to the records that a change means. */

function contentLines(text: string): string[] {
  return text.split(/\r?\n/);
}

function isMeant({ users, groups, grants }: AccessRecords, change: Change) {
  return (table: string | undefined, index: number): boolean => {
    if (change.kind.startsWith("add-")) return false;
    if (table === "groups") return "group" in change && groups[index]?.name === change.group.name;
    const name = table === "users" ? users[index]?.username : grants[index]?.holder;
    if (String(name) !== String(changedHolder(change))) return false;
    if (change.kind === "remove-user" || change.kind === "remove-group") return true;
    if (change.kind === "update-user") return table === "users";
    return "grant" in change && grants[index]?.database === change.grant.database;
  };
}

/** The numbers, from 0, of the lines on which the records that `change` means are written. */
function ownedLines(text: string, change: Change): Set<number> {
  const meant = isMeant(parseRecords(text, "access.toml"), change);
  const owned = new Set<number>();
  const records: Record<string, number> = { users: 0, groups: 0, acl: 0 };
  let isOwned = false;
  for (const statement of outline(text)) {
    if (statement.kind === "array-table") {
      const [table = ""] = statement.path;
      const index = records[table] ?? 0;
      isOwned = meant(table, index);
      records[table] = index + 1;
    }
    if (!isOwned) continue;
    const first = statement.line - 1;
    const height = contentLines(text.slice(statement.start, statement.end)).length;
    for (let line = first; line < first + height; line += 1) owned.add(line);
  }
  return owned;
}

const name = fc.constantFrom("alice", "bob", "c.d@e", "Dora", "new", "p:x", "ghost");
const group = fc.constantFrom("team", "leads", "new");
const holder = fc.oneof(
  name,
  fc.constantFrom("team", "leads", "ghosts", "p:r d").map((group) => `group:${group}`),
);

/** Keys that are taken out, or set to what they are without being written. */
const cleared: fc.Arbitrary<UserFields> = fc.record(
  {
    email: fc.constant(undefined),
    passwordHash: fc.constant(undefined),
    disabled: fc.constant(false),
    tokensValidAfter: fc.constant(0),
    sameAs: fc.constant(undefined),
  },
  { requiredKeys: [] },
);

/** An intended change, made if it is possible in the current state. */
const intention = fc.oneof(
  fc.record({ act: fc.constant("user" as const), name, fields: userFields }),
  fc.record({ act: fc.constant("user" as const), name, fields: cleared }),
  fc.record({
    act: fc.constant("remove" as const),
    name: fc.oneof(
      name,
      group.map((group) => `group:${group}`),
    ),
  }),
  fc.record({ act: fc.constant("group" as const), name: group, members }),
  fc.record({ act: fc.constant("grant" as const), name: holder, database, role }),
  fc.record({ act: fc.constant("revoke" as const), name: holder, database }),
);
type Intention = typeof intention extends fc.Arbitrary<infer I> ? I : never;

function fullUser(username: string, fields: UserFields) {
  return {
    username,
    email: fields.email,
    passwordHash: fields.passwordHash,
    disabled: fields.disabled ?? false,
    tokensValidAfter: fields.tokensValidAfter ?? 0,
    ...(fields.sameAs === undefined ? {} : { sameAs: fields.sameAs }),
  };
}

/** The change that an intention comes to, and the model after it; undefined if it is senseless. */
function changeFor(model: Model, wanted: Intention): { change: Change; next: Model } | undefined {
  const users = new Map(model.users);
  const groups = new Map(model.groups);
  const grants = new Map(model.grants);
  const next = { users, groups, grants };
  const username = wanted.name;
  if (wanted.act === "group") {
    const group = { name: username, members: wanted.members };
    const kind = groups.has(username) ? "update-group" : "add-group";
    groups.set(username, wanted.members);
    return { next, change: { kind, group } };
  }
  if (wanted.act === "user") {
    const known = users.get(username);
    users.set(username, { ...known, ...wanted.fields });
    if (known === undefined) {
      return { next, change: { kind: "add-user", user: fullUser(username, wanted.fields) } };
    }
    return { next, change: { kind: "update-user", username, update: wanted.fields } };
  }
  if (wanted.act === "remove") {
    const name = groupOf(readHolder(username));
    const isKnown = name === undefined ? users.delete(username) : groups.delete(name);
    const keys = grants
      .keys()
      .filter((key) => key.startsWith(`${username} `))
      .toArray();
    if (!isKnown && (name === undefined || keys.length === 0)) return undefined;
    for (const key of keys) grants.delete(key);
    if (name === undefined) return { next, change: { kind: "remove-user", username } };
    return { next, change: { kind: "remove-group", group: { name, members: [] } } };
  }
  const key = `${username} ${wanted.database}`;
  if (wanted.act === "revoke") {
    const role = grants.get(key);
    if (role === undefined) return undefined;
    grants.delete(key);
    const grant = { holder: readHolder(username), database: wanted.database, role };
    return { next, change: { kind: "remove-grant", grant } };
  }
  const grant = { holder: readHolder(username), database: wanted.database, role: wanted.role };
  const change: Change = grants.has(key)
    ? { kind: "set-grant", grant }
    : { kind: "add-grant", grant };
  grants.set(key, wanted.role);
  return { next, change };
}

function requireSays(text: string, model: Model): void {
  const records = parseRecords(text, "access.toml");
  const users = Array.from(model.users, ([username, fields]) => fullUser(username, fields));
  const byName = (a: { username: string }, b: { username: string }) =>
    a.username < b.username ? -1 : 1;
  assert.deepEqual(records.users.toSorted(byName), users.sort(byName));
  const groups = Array.from(model.groups, ([name, members]) => ({ name, members }));
  const inOrder = (a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1);
  assert.deepEqual(records.groups.toSorted(inOrder), groups.sort(inOrder));
  const grants = records.grants.map(({ holder, database, role }) => [
    `${holderText(holder)} ${database}`,
    role,
  ]);
  assert.deepEqual(grants.sort(), [...model.grants].sort());
}

function comments(text: string): string[] {
  return text.match(/# comment-\w+[^\r\n]*/g) ?? [];
}

function requireUntouched(before: string, after: string, change: Change): void {
  assert.deepEqual(comments(after).sort(), comments(before).sort(), "every comment survives");
  const owned = ownedLines(before, change);
  const kept = contentLines(before).filter((_line, number) => !owned.has(number));
  const remaining = contentLines(after);
  let at = 0;
  for (const line of kept.filter((line) => line.trim() !== "")) {
    at = remaining.indexOf(line, at) + 1;
    assert.ok(at > 0, `lost or moved: ${line}`);
  }
  const blank = (lines: string[]) => lines.filter((line) => line.trim() === "").length;
  assert.ok(blank(remaining) >= blank(kept) - owned.size, "few blank lines go");
  const hasCarriageReturns = before.includes("\r\n");
  assert.equal(
    /(?<!\r)\n/.test(after),
    !hasCarriageReturns && after.includes("\n"),
    "one line end",
  );
}

t.test("any change to any file is exact and keeps comments and other lines", async (t) => {
  let changes = 0;
  fc.assert(
    fc.property(documents, fc.array(intention, { maxLength: 8 }), ({ text, model }, intentions) => {
      requireSays(text, model);
      let current = { text, model };
      for (const wanted of intentions) {
        const planned = changeFor(current.model, wanted);
        if (planned === undefined) continue;
        const edited = edit(current.text, planned.change);
        requireSays(edited, planned.next);
        requireUntouched(current.text, edited, planned.change);
        current = { text: edited, model: planned.next };
        changes += 1;
      }
    }),
    { numRuns: 400 },
  );
  t.ok(changes > 500, "enough was changed");
});

t.test("several changes at once equal the same changes in sequence", async (t) => {
  const added = fc.record({ act: fc.constant("user" as const), name, fields: userFields });
  const formed = fc.record({ act: fc.constant("group" as const), name: group, members });
  const given = fc.record({ act: fc.constant("grant" as const), name: holder, database, role });
  fc.assert(
    fc.property(documents, fc.tuple(added, formed, given, given), ({ text, model }, intentions) => {
      const changes: Change[] = [];
      let current = model;
      for (const wanted of intentions) {
        const planned = changeFor(current, wanted);
        const isRepeated = planned?.change.kind === "set-grant" && wanted === intentions[3];
        if (planned === undefined || isRepeated) continue;
        changes.push(planned.change);
        current = planned.next;
      }
      requireSays(edit(text, ...changes), current);
    }),
    { numRuns: 200 },
  );
  t.pass();
});

t.test("removing an addition restores the file", async (t) => {
  fc.assert(
    fc.property(documents, userFields, ({ text, model }, fields) => {
      const added = edit(text, { kind: "add-user", user: fullUser("brand-new", fields) });
      const remove: Change = { kind: "remove-user", username: "brand-new" };
      const removed = edit(added, remove);
      requireSays(removed, model);
      requireUntouched(added, removed, remove);
    }),
    { numRuns: 200 },
  );
  t.pass();
});
