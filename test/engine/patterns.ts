import type { Test } from "tap";
import { type Answer, createTable, insert, selectAll } from "./kit.ts";

/** Asks by patterns with a backslash in them, and by patterns of numbers. */
export async function matchPatterns(
  t: Test,
  ask: (body: object | string) => Promise<Answer>,
): Promise<void> {
  await ask(createTable("paths", { id: "int", path: "text" }));
  await ask(
    insert("paths", [
      { id: 1, path: "a\\b%" },
      { id: 2, path: "ab%" },
    ]),
  );
  const like = async (column: string, value: string) =>
    (await ask(selectAll("paths", { where: { column, cmp: "LIKE", value } }))).body.data;
  t.match(await like("path", "a\\%"), [{ id: 1 }]);
  t.match(await like("id", "2%"), [{ id: 2 }]);
}
