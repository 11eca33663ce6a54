import assert from "node:assert/strict";
import fc from "fast-check";
import t from "tap";
import { editText } from "../../src/core/access/edit.ts";
import { groupOf, holderText, readHolder } from "../../src/core/access/grant.ts";
import { type Change, changedHolder } from "../../src/core/access/record-change.ts";
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
        const records = parseRecords(current.text, "access.toml");
        const edited = editText(current.text, records, [planned.change]);
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
      requireSays(editText(text, parseRecords(text, "access.toml"), changes), current);
    }),
    { numRuns: 200 },
  );
  t.pass();
});

t.test("removing an addition restores the file", async (t) => {
  fc.assert(
    fc.property(documents, userFields, ({ text, model }, fields) => {
      const add: Change = { kind: "add-user", user: fullUser("brand-new", fields) };
      const added = editText(text, parseRecords(text, "a"), [add]);
      const remove: Change = { kind: "remove-user", username: "brand-new" };
      const removed = editText(added, parseRecords(added, "a"), [remove]);
      requireSays(removed, model);
      requireUntouched(added, removed, remove);
    }),
    { numRuns: 200 },
  );
  t.pass();
});
