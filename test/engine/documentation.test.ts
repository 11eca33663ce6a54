import { readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { refusals } from "../../src/core/base/refusal.ts";
import { queryRefusals } from "../../src/core/query/refusal.ts";
import { typeWords as mysqlTypeWords } from "../../src/engine/mysql/kinds.ts";
import { typeWords as postgresTypeWords } from "../../src/engine/postgres/dialect.ts";
import { refusalStatuses } from "../../src/engine/refusal.ts";
import { typeWords } from "../../src/engine/sqlite/kinds.ts";

const text = readFileSync(path.join(import.meta.dirname, "../../docs/query.md"), "utf8");

/** The cells of table rows under a second-level heading. */
function rows(heading: string): string[][] {
  const section = text.split(/^## /m).find((part) => part.startsWith(`${heading}\n`)) ?? "";
  return section
    .split("\n")
    .filter((line) => line.startsWith("| "))
    .map((line) => line.slice(2, -2).split(" | "));
}

t.test("a code has the same status in the gateway and the engine", async (t) => {
  const ofGateway = new Map<string, number>();
  for (const code of Object.keys(queryRefusals)) ofGateway.set(code, 400);
  for (const [code, [status]] of Object.entries(refusals)) ofGateway.set(code, status);
  for (const [code, status] of Object.entries(refusalStatuses)) {
    // 403 if the gateway counts the rows, 409 if the engine does.
    if (code === "too_many_changes") continue;
    t.equal(ofGateway.get(code) ?? status, status, code);
  }
});

t.test("query.md lists every type of CreateTable, and no others", async (t) => {
  const documented = rows("Types").flatMap(([words = ""]) =>
    Array.from(words.matchAll(/`(\w+)`/g), ([, word = ""]) => word),
  );
  t.strictSame(documented.sort(), [...typeWords].sort());
  t.strictSame([...postgresTypeWords].sort(), [...typeWords].sort());
  t.strictSame([...mysqlTypeWords].sort(), [...typeWords].sort());
});
