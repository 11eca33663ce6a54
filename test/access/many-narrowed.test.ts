/** A large access file whose entries say more than a role: read and decided by. */
import t from "tap";
import { parseAccessFile } from "../../src/access/parse.ts";
import { decidePlace } from "../../src/access/policy.ts";
import type { Snapshot } from "../../src/access/snapshot.ts";
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

function decided(snapshot: Snapshot, username: string, table: string) {
  const question = { permissions: ["UPDATE" as const], database: "main", table };
  return decidePlace(snapshot, username, question, { via: "query", now: 0 });
}

t.test("each user is decided on by its own entries, wherever they stand", (t) => {
  const parsed = parseAccessFile(text, "access.toml");
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
