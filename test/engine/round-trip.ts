import fc from "fast-check";
import type { Test } from "tap";
import { type Answer, createTable, insert, selectAll } from "./kit.ts";

type Ask = (body: object | string) => Promise<Answer>;

/** Any moment of the years 1 to 9999, in the words of ISO 8601. */
function instants(): fc.Arbitrary<string> {
  const range = { min: new Date("0001-01-01"), max: new Date("9999-12-31"), noInvalidDate: true };
  return fc.date(range).map((date) => date.toISOString());
}

/** JSON texts that columns of every server give back as they are, by their types. */
export const commonTexts: Record<string, fc.Arbitrary<string>> = {
  bigint: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(String),
  boolean: fc.boolean().map(String),
  blob: fc.uint8Array().map((bytes) => JSON.stringify(Buffer.from(bytes).toString("base64"))),
  uuid: fc.uuid().map((uuid) => JSON.stringify(uuid)),
  date: instants().map((time) => JSON.stringify(time.slice(0, 10))),
  timestamp: instants().map((time) => JSON.stringify(time.replace(/\.?0*Z$/, "Z"))),
};

/** Fills a new column of the type with JSON texts, and asks for them and by some of them. */
export async function comeBack(
  t: Test,
  ask: Ask,
  type: string,
  drawn: readonly string[],
): Promise<void> {
  await ask(createTable(type, { id: "int", cell: type }));
  const rows = drawn.map((cell, id) => `{"id":${id},"cell":${cell}}`).join(",");
  const body = `{"Insert":{"database":"main","table":"${type}","values":[${rows}]}}`;
  t.match(await ask(body), { status: 200 }, type);
  const { text } = await ask(selectAll(type, { order_by: { column: "id" } }));
  t.equal(text, `{"status":"success","data":[${rows}]}`, type);
  for (const [id, cell] of drawn.slice(0, 10).entries()) {
    if (cell === "null") continue;
    const where = `{"and":[{"column":"cell","cmp":"=","value":${cell}},{"column":"id","cmp":"=","value":${id}}]}`;
    const found = await ask(
      `{"Select":{"database":"main","from":"${type}","columns":["id"],"where":${where}}}`,
    );
    t.equal(found.text, `{"status":"success","data":[{"id":${id}}]}`, `${type} ${cell}`);
  }
}

/** Fills a new column with doubles of every size, and looks for the same ones. */
export async function doublesComeBack(t: Test, ask: Ask): Promise<void> {
  await ask(createTable("doubles", { id: "int", cell: "double" }));
  const drawn = fc.sample(fc.double({ noNaN: true, noDefaultInfinity: true }), 500);
  const sure = [...drawn, Number.MAX_VALUE, Number.MIN_VALUE, 5e-324, 0.1, 1e21, 2 ** 53];
  const rows = sure.map((cell, id) => ({ id, cell: Object.is(cell, -0) ? 0 : cell }));
  t.match(await ask(insert("doubles", rows)), { status: 200 });
  t.strictSame((await ask(selectAll("doubles", { order_by: { column: "id" } }))).body.data, rows);
  const tooMuch = `{"Insert":{"database":"main","table":"doubles","values":[{"id":-1,"cell":1e400}]}}`;
  t.match(await ask(tooMuch), { status: 400, body: { code: "number_out_of_range" } });
  const rounded = tooMuch.replace("1e400", "9007199254740993");
  t.match(await ask(rounded), { status: 400, body: { code: "invalid_value" } });
}
