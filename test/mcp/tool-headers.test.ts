import fc from "fast-check";
import t from "tap";
import { decodeHeaderValue, encodeHeaderValue } from "../../src/mcp/protocol-headers.ts";
import { readHeaderDeclarations } from "../../src/mcp/stdio.ts";

const region = { type: "string", "x-mcp-header": "Region" };

t.test("declarations are found along properties, however deep", async (t) => {
  const place = { type: "object", properties: { region, "x-mcp-header": { type: "string" } } };
  const schema = {
    type: "object",
    properties: { place, page: { type: "integer", "x-mcp-header": "Page" }, note: {} },
    default: { "x-mcp-header": "data, and no declaration" },
  };
  t.strictSame(readHeaderDeclarations(schema), [
    { path: ["place", "region"], header: "Region" },
    { path: ["page"], header: "Page" },
  ]);
  for (const none of [undefined, true, {}, { properties: [] }]) {
    t.strictSame(readHeaderDeclarations(none), []);
  }
});

t.test("a declaration anywhere else, or against the rules, is refused", async (t) => {
  const properties = { region };
  const refused: Record<string, object> = {
    "at the root": region,
    "of an element": { properties: { all: { type: "array", items: region } } },
    "of an alternative": { anyOf: [{ properties }] },
    "behind a condition": { if: {}, else: { properties } },
    "in a definition": { $defs: { place: { properties } } },
    "of other properties": { additionalProperties: region },
    "by a pattern": { patternProperties: { "^r": region } },
    "behind an unknown keyword": { somewhere: { properties } },
    "on a number": { properties: { region: { ...region, type: "number" } } },
    "on an object": { properties: { region: { ...region, type: "object" } } },
    "on any type": { properties: { region: { "x-mcp-header": "Region" } } },
    "without a name": { properties: { region: { ...region, "x-mcp-header": "" } } },
    "with a name that is none": { properties: { region: { ...region, "x-mcp-header": "a\r\nb" } } },
    "with a name in two cases": {
      properties: { region, other: { ...region, "x-mcp-header": "REGION" } },
    },
  };
  for (const [where, schema] of Object.entries(refused)) {
    t.throws(() => readHeaderDeclarations(schema), /x-mcp-header/, where);
  }
});

t.test("every text is the same after its way through a header", async (t) => {
  t.equal(encodeHeaderValue("us-west1"), "us-west1");
  for (const text of ["", " padded ", "line\nline", "=?base64?literal?=", "世界"]) {
    t.match(encodeHeaderValue(text), /^=\?base64\?.*\?=$/);
  }
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), (text) => {
      const value = encodeHeaderValue(text);
      return decodeHeaderValue(value) === text && value === value.trim();
    }),
  );
});
