import type { Test } from "tap";
import { type Answer, createTable, insert, selectAll } from "./kit.ts";

/** An Update of one row of `counts`. */
export function setCount(id: number, count: number) {
  const where = { column: "id", cmp: "=", value: id };
  return { Update: { database: "main", table: "counts", set: { count }, where } };
}

/** Sends batches in opposite orders: they lock each other out, and the server ends one of the two. */
export async function crossingBatches(
  t: Test,
  ask: (body: object) => Promise<Answer>,
): Promise<void> {
  await ask(createTable("counts", { id: "int", count: "int" }));
  const ids = [1, 2, 3, 4];
  await ask(
    insert(
      "counts",
      ids.map((id) => ({ id, count: 0 })),
    ),
  );
  const answers = await Promise.all(
    Array.from({ length: 12 }, (_, round) => {
      const order = round % 2 === 0 ? ids : ids.toReversed();
      return ask({ Batch: [...order.map((id) => setCount(id, round)), selectAll("counts")] });
    }),
  );
  const done = answers.filter(({ status }) => status === 200);
  t.ok(done.length > answers.length / 2);
  for (const { status, body } of answers) {
    if (status !== 200) t.match([status, body.code], [503, "busy"]);
  }
  for (const { body } of done) {
    const rows = JSON.stringify(body.data?.at(-1));
    t.equal(new Set(rows.match(/"count":\d+/g)).size, 1, "each saw its own writes alone");
  }
}
