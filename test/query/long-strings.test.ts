import t from "tap";
import { LongRuns } from "../../src/json/bytes.ts";
import { insertOf, refusalOf, verdict } from "./kit.ts";

/** Where a run ends, found byte by byte. */
function plainEnd(bytes: Buffer, start: number): number {
  let position = start;
  for (; position < bytes.length; position++) {
    const byte = bytes[position] ?? 0;
    if (byte === 0x22 || byte === 0x5c || byte < 0x20) break;
  }
  return position;
}

t.test("a run ends at each byte that ends it, wherever that stands", async (t) => {
  for (const length of [0, 1, 3, 4, 5, 15, 16, 17, 63, 130, 200, 300]) {
    for (const special of [
      '"',
      "\\",
      "\n",
      "\0",
      "\u001f",
      "\u0080",
      "\u007f",
      " ",
      "!",
      "[",
      "]",
      "#",
    ]) {
      for (const around of ["a", "é", "漢", "\u007f"]) {
        const text = Buffer.from(`${around.repeat(length)}${special}${around.repeat(20)}"`);
        // Also as a view into a larger buffer that begins at an odd address.
        for (const bytes of [text, Buffer.concat([Buffer.from("xxx"), text]).subarray(3)]) {
          for (const start of [0, 1, 2, 3]) {
            if (new LongRuns(bytes).end(start) === plainEnd(bytes, start)) continue;
            t.fail(`${JSON.stringify(special)} after ${length} of ${around}, from ${start}`);
          }
        }
      }
    }
  }
});

t.test("runs are found one after the other by the same finder", async (t) => {
  const part = `${"x".repeat(200)}"${"y".repeat(7)}\\${"é".repeat(150)}\n${"z".repeat(500)}`;
  const bytes = Buffer.from(part.repeat(20));
  const runs = new LongRuns(bytes);
  for (let start = 0; start < bytes.length; start = runs.end(start) + 1) {
    if (runs.end(start) !== plainEnd(bytes, start)) t.fail(`from ${start}`);
  }
});

t.test(
  "a control character is refused at any place of a long cell, and told by its offset",
  async (t) => {
    const before = Buffer.byteLength(insertOf('"').split("}")[0] ?? "");
    for (const length of [31, 32, 33, 150, 500, 4000]) {
      const { code, location } = refusalOf(
        insertOf(`"${"é".repeat(length)}\u0001${"x".repeat(300)}"`),
      );
      t.equal(code, "invalid_json");
      t.equal(location.offset, before + 2 * length);
    }
  },
);

t.test("escapes are judged within long text too", async (t) => {
  const long = "lorem ipsum ".repeat(60);
  for (const good of ["\\n", '\\"', "\\\\", "\\u0041", "\\ud83d\\ude00"]) {
    t.equal(verdict(insertOf(`"${long}${good}${long}"`)), "accepted", good);
  }
  for (const [bad, code] of [
    ["\\x", "invalid_json"],
    ["\\u00g0", "invalid_json"],
    ["\\ud800", "lone_surrogate"],
    ["\t", "invalid_json"],
  ] as const) {
    t.equal(verdict(insertOf(`"${long}${bad}${long}"`)), code, bad);
  }
  t.equal(verdict(insertOf(`"${long}`)), "invalid_json");
});

t.test("long white space is passed over, and nothing that only looks like it", async (t) => {
  for (const space of [" ", "\t", "\n", "\r\n", " \t\r\n", "\n    "]) {
    for (const count of [3, 4, 5, 16, 17, 40, 999]) {
      t.equal(verdict(insertOf(space.repeat(count) + 1)), "accepted");
      t.equal(verdict(insertOf(`${space.repeat(count)}\f1`)), "invalid_json");
      t.equal(verdict(insertOf("1") + space.repeat(count)), "accepted");
      t.equal(verdict(`${insertOf("1")}${space.repeat(count)}\0`), "trailing_data");
    }
  }
});
