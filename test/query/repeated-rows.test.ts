import t from "tap";
import { judgeBody } from "./differential.ts";
import { refusalOf } from "./kit.ts";

const row =
  '{"id":12,"name":"Ada L","email":"a\u00e9@b.c","active":true,"gone":false,"x":null,"n":-0.5}';
const bytes = [...'\u0000\u001f !"\\/+-.0159:;EeNTfnrstu[]{},x\u007f'].map((one) =>
  one.charCodeAt(0),
);

/** Rows of which all behind the first repeat it, and perhaps another one. */
function rows(count: number, ...others: string[]): Buffer {
  const values = [...Array(count).fill(row), ...others].join();
  return Buffer.from(`{"Insert":{"database":"main","table":"users","values":[${values}]}}`);
}

t.test("rows that repeat the one before, but for one byte, are judged as any others", async (t) => {
  const body = rows(5);
  const start = body.indexOf(row) + 2 * (Buffer.byteLength(row) + 1);
  for (let offset = start; offset < start + Buffer.byteLength(row) + 3; offset++) {
    for (const byte of [...bytes, 0xc3, 0xff]) {
      const damaged = Buffer.from(body);
      damaged[offset] = byte;
      const { fault } = judgeBody(damaged, 1 + (offset % 7));
      if (fault !== undefined) t.fail(`${fault}: ${damaged.toString("base64")}`);
    }
  }
});

t.test("a body of such rows that ends anywhere is refused", async (t) => {
  const body = rows(3);
  for (let length = body.indexOf(row); length < body.length; length++) {
    const { fault, isAccepted } = judgeBody(body.subarray(0, length), 5);
    if (isAccepted || fault !== undefined) t.fail(`${fault} at ${length}`);
  }
});

t.test("a fault behind such rows is told with the number of its row", async (t) => {
  const found = (last: string) => {
    const body = rows(7)
      .toString()
      .replace(/\]\}\}$/, `,${last}]}}`);
    const { code, location } = refusalOf(body);
    return `${code} ${location.path}`;
  };
  t.equal(found('{"id":1,"id":2}'), "duplicate_key Insert.values[7]");
  t.equal(found('{"id":12,"name":"Ada L","id":13}'), "duplicate_key Insert.values[7]");
  t.equal(found('{"id":tru}'), "invalid_json Insert.values[7]");
  t.equal(found('{"id":12,"name":[}'), "invalid_json Insert.values[7]");
  t.equal(found("7"), "wrong_type Insert.values[7]");
});
