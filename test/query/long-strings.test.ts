import t from "tap";
import { insertOf, refusalOf, verdict } from "./kit.ts";

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
