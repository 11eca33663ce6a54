import assert from "node:assert/strict";
import { getHeapSpaceStatistics } from "node:v8";
import fc from "fast-check";
import t from "tap";
import { AccessFileError, type ParsedAccess, parseSteps } from "../../src/access/parse.ts";
import { type AccessRecords, type RecordProblem, readRecords } from "../../src/access/records.ts";
import { grantOn } from "../../src/access/snapshot.ts";
import { editAndVerify } from "../../src/access/write.ts";
import { runAtOnce, type Steps } from "../../src/cooperative-scheduling.ts";
import { parseToml, TomlSyntaxError } from "../../src/toml/values.ts";
import { documents } from "./documents.ts";
import { grant, plainSnapshot, user } from "./kit.ts";

function read(text: string, earlier?: ParsedAccess): ParsedAccess | undefined {
  try {
    return runAtOnce(parseSteps(Buffer.from(text), "access.toml", earlier));
  } catch (error) {
    if (error instanceof AccessFileError) return undefined;
    throw error;
  }
}

/** What the TOML parser alone makes of the text. */
function readByParser(text: string): AccessRecords | undefined {
  const problems: RecordProblem[] = [];
  try {
    const { values } = parseToml(text, "access.toml");
    const { users, grants, boundaries } = readRecords(values, (problem) => problems.push(problem));
    if (problems.length > 0) return undefined;
    return {
      users: users.filter((one) => one !== undefined),
      grants: grants.filter((one) => one !== undefined),
      boundaries: boundaries.filter((one) => one !== undefined),
    };
  } catch (error) {
    if (error instanceof TomlSyntaxError) return undefined;
    throw error;
  }
}

const tidy = [
  user("alice"),
  grant("alice", "main", "Owner"),
  user("bob"),
  grant("bob", "*", "ReadOnly"),
];
const pieces = fc.oneof(
  fc.constantFrom(
    "[[users]]",
    "\n[[acl]]\n",
    '"""',
    "'''",
    '"',
    "'",
    "[",
    "]",
    "\\",
    "\n",
    "\r",
    "#",
  ),
  fc.constantFrom(
    "=",
    ".",
    "a = [\n",
    "]\n",
    "{",
    "}",
    "\uFEFF",
    "\0",
    '\n[[users]]\nusername = "x"\n',
    // What stands behind it is read as a piece of its own.
    `${"\n#".padEnd(1 << 16, "x")}\n`,
  ),
);

const wounds = fc.array(fc.tuple(fc.nat(), fc.nat({ max: 8 }), pieces), { maxLength: 3 });
type Wounds = typeof wounds extends fc.Arbitrary<infer W> ? W : never;

/** Cuts pieces of a text out and puts others in. */
function wounded(text: string, wounds: Wounds): string {
  return wounds.reduce((rest, [place, length, piece]) => {
    const at = place % (rest.length + 1);
    return (rest.slice(0, at) + piece + rest.slice(at + length)).toWellFormed();
  }, text);
}

const whole = fc.oneof(
  fc.constant(tidy.join("")),
  documents.map(({ text }) => text),
);
const mutilated = fc.tuple(whole, wounds).map(([text, wounds]) => wounded(text, wounds));

/** What a reading says, whatever it shares with an earlier one. */
function contentOf(reading: ParsedAccess | undefined) {
  if (reading === undefined) return undefined;
  const { snapshot, index } = reading;
  const uses = new Map([...index.uses].filter(([, count]) => count > 0));
  return { ...plainSnapshot(snapshot), sizes: [snapshot.users.size, snapshot.grants.size], uses };
}

t.test("a file says to the gateway what it says to a TOML parser, or is refused by both", (t) => {
  let accepted = 0;
  fc.assert(
    fc.property(mutilated, (text) => {
      const records = read(text)?.records;
      const parsed = readByParser(text);
      if (records === undefined) {
        // What a parser reads may still break a rule between records.
        if (parsed !== undefined) assert.ok(isInconsistent(parsed), text);
        return;
      }
      accepted += 1;
      assert.deepEqual(records, parsed);
    }),
    { numRuns: 3000 },
  );
  t.ok(accepted > 300, "enough of them were good");
  t.end();
});

/** True if records that are right by themselves contradict each other, or there are none. */
function isInconsistent({ users, grants }: AccessRecords): boolean {
  const names = users.map(({ username }) => username);
  const entries = grants.map(({ username, database }) => `${username} ${database}`);
  const databases = new Set(grants.map(({ database }) => database));
  const folded = new Set([...databases].map((name) => name.toLowerCase()));
  return (
    new Set(names).size < names.length ||
    new Set(entries).size < entries.length ||
    folded.size < databases.size ||
    names.length + entries.length === 0
  );
}

t.test("what was read earlier changes nothing in what a file says", (t) => {
  let accepted = 0;
  fc.assert(
    fc.property(mutilated, wounds, (before, more) => {
      const after = wounded(before, more);
      const earlier = read(before);
      const afresh = read(after);
      const again = read(after, earlier);
      assert.deepEqual(contentOf(again), contentOf(afresh));
      assert.deepEqual(again?.records, afresh?.records);
      if (earlier !== undefined && afresh !== undefined) accepted += 1;
    }),
    { numRuns: 3000 },
  );
  t.ok(accepted > 100, "enough of them were good");
  t.end();
});

/** Does the work; what it gives, and the most bytes that V8 held for large texts and buffers meanwhile, beyond those before. */
function weighed<T>(steps: Steps<T>): { value: T; most: number } {
  const bytesHeld = () =>
    getHeapSpaceStatistics()
      .filter(({ space_name: name }) => name.endsWith("large_object_space"))
      .reduce((sum, { space_used_size: size }) => sum + size, process.memoryUsage().external);
  const before = bytesHeld();
  let most = 0;
  let step = steps.next();
  for (; !step.done; step = steps.next()) most = Math.max(most, bytesHeld() - before);
  return { value: step.value, most: Math.max(most, bytesHeld() - before) };
}

t.test("the text of a large file is never in memory as a whole", (t) => {
  const comment = `# ü${"x".repeat(1 << 14)}\n`;
  const tables = Array.from({ length: 1000 }, (_, at) => Buffer.from(user(`u${at}`) + comment));
  const bytes = Buffer.concat(tables);
  const read = weighed(parseSteps(bytes, "access.toml"));
  t.equal(read.value.snapshot.users.size, 1000);
  t.ok(read.most < bytes.length / 2, `${read.most} bytes more to read ${bytes.length}`);
  const changes = [{ kind: "remove-user", username: "u500" }] as const;
  const edited = weighed(editAndVerify(read.value, "access.toml", changes));
  t.ok(
    edited.value.bytes.equals(
      Buffer.concat([...tables.slice(0, 500), Buffer.from(comment), ...tables.slice(501)]),
    ),
  );
  t.ok(edited.most < bytes.length * 1.5, `${edited.most} bytes more to edit ${bytes.length}`);
  t.end();
});

t.test("a change of one record leaves all others the very same objects", (t) => {
  const before = read(tidy.join("") + grant("bob", "logs", "ReadOnly"));
  const after = read(tidy.join("") + grant("bob", "logs", "Owner"), before);
  t.equal(after?.snapshot.users, before?.snapshot.users, "no user has changed");
  t.equal(after?.snapshot.databases, before?.snapshot.databases);
  t.equal(after?.snapshot.grants.get("alice"), before?.snapshot.grants.get("alice"));
  t.equal(after && grantOn(after.snapshot, "bob", "logs")?.role, "Owner");
  t.strictSame([...(after?.snapshot.grants.get("bob")?.keys() ?? [])], ["*", "logs"]);
  t.equal(before && grantOn(before.snapshot, "bob", "logs")?.role, "ReadOnly", "as it was");
  t.end();
});
