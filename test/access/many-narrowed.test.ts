/** A large access file whose entries say more than a role: read, changed and decided by. */
import t from "tap";
import { type ParsedAccess, parseSteps } from "../../src/access/parse.ts";
import { decidePlace } from "../../src/access/policy.ts";
import { runAtOnce } from "../../src/cooperative-scheduling.ts";
import { grant, user } from "./kit.ts";

const MANY = 4000;

function narrowed(index: number): string {
  return `${grant(`user${index}`, "main", "ReadWrite").trimEnd()}
tables = ["team${index % 100}", "own_${index}_*"]
columns = ["id", "tenant", "status"]
row_filter = [{ column = "tenant", cmp = "=", value = "@username" }]
max_rows = 200
expires = 2126-01-01T00:00:00Z\n\n`;
}

const text = Array.from({ length: MANY }, (_, index) => {
  const name = `user${index}`;
  return user(name) + grant(name, "main", "ReadOnly") + narrowed(index);
}).join("");

function read(content: string, earlier?: ParsedAccess): ParsedAccess {
  return runAtOnce(parseSteps(Buffer.from(content), "access.toml", earlier));
}

function decided({ snapshot }: ParsedAccess, username: string, table: string) {
  const question = { permissions: ["UPDATE" as const], database: "main", table };
  return decidePlace(snapshot, username, question, { via: "query", now: 0 });
}

t.test("only what has changed in it is read again, and decides at once", (t) => {
  const first = read(text);
  t.ok(first.plain, "it is written plainly");
  t.equal(first.records.grants.length, 2 * MANY);
  const line = 'tables = ["team42", "own_1042_*"]\n';
  t.equal(text.split(line).length, 2);
  const second = read(text.replace(line, 'tables = ["team43"]\n'), first);
  const known = new Set<object>([...first.records.users, ...first.records.grants]);
  const { users, grants } = second.records;
  t.equal([...users, ...grants].filter((record) => !known.has(record)).length, 1);
  const places: [username: string, table: string, before: string, after: string][] = [
    ["user1042", "team42", "main.team42", "main"],
    ["user1042", "team43", "main", "main.team43"],
    ["user1042", "own_1042_notes", "main.own_1042_*", "main"],
    ["user1041", "own_1041_notes", "main.own_1041_*", "main.own_1041_*"],
  ];
  for (const [username, table, before, after] of places) {
    t.equal(decided(first, username, table).entry, before);
    t.equal(decided(second, username, table).entry, after);
  }
  t.end();
});

t.test("each user is decided on by its own entries, wherever they stand", (t) => {
  const parsed = read(text);
  for (let index = 0; index < MANY; index += 97) {
    const name = `user${index}`;
    t.match(decided(parsed, name, `team${index % 100}`), {
      ...{ allowed: true, role: "ReadWrite", entry: `main.team${index % 100}` },
      grant: { username: name, columns: ["id", "tenant", "status"], maxRows: 200 },
    });
    t.match(decided(parsed, name, `own_${index + 1}_x`), { allowed: false, entry: "main" });
  }
  t.end();
});
