import { readFileSync } from "node:fs";
import * as z from "zod";

/** JSON whose numbers keep their digits, as an answer and what is expected of it are compared. */

/** A number as it was written. */
export class JsonNumber {
  readonly source: string;

  constructor(source: string) {
    this.source = source;
  }
}

/** A JSON value. */
export type Json = null | boolean | string | JsonNumber | Json[] | JsonObject;

/** A JSON object. */
export interface JsonObject {
  [name: string]: Json;
}

/** True if a value is an object, and no array. */
export function isObject(value: unknown): value is JsonObject {
  return (
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    !(value instanceof JsonNumber)
  );
}

/** Parses JSON. @throws SyntaxError */
export function parseJson(text: string): Json {
  return JSON.parse(text, (_key, value: unknown, context?: { source: string }) =>
    typeof value === "number" ? new JsonNumber(context?.source ?? "") : value,
  );
}

/** Writes a value, with a space behind `:` and `,` for whoever reads it. */
export function writeJson(value: Json): string {
  if (value instanceof JsonNumber) return value.source;
  if (Array.isArray(value)) return `[${value.map(writeJson).join(", ")}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const members = Object.entries(value).map(
    ([name, member]) => `${JSON.stringify(name)}: ${writeJson(member)}`,
  );
  return `{${members.join(", ")}}`;
}

/** True if two numbers have one value, however they are written: `1.50`, `1.5` and `15e-1`. */
export function isSameNumber(one: JsonNumber, other: JsonNumber): boolean {
  return canonical(one) === canonical(other);
}

/** Sign, digits without zeros at either end, and the power of ten of the last one. */
function canonical({ source }: JsonNumber): string {
  const [, sign = "", whole = "", fraction = "", power = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(source) ?? [];
  const digits = (whole + fraction).replace(/^0+/, "");
  const kept = digits.replace(/0+$/, "");
  if (kept === "") return "0";
  return `${sign}${kept}e${Number(power) - fraction.length + digits.length - kept.length}`;
}

/** The cases that a database which speaks the queries has to answer, as `schemas/query.cases.json` has them. */

/** Where the cases stand. */
export const casesFile = new URL("../../schemas/query.cases.json", import.meta.url);

const object = z.custom<JsonObject>((value) => isObject(value));

/** A query and the answer to it. */
const caseShape = z.strictObject({
  name: z.string(),
  /** The body; its database `main` stands for one that is made for the section. */
  send: object,
  status: z
    .custom<JsonNumber>((value) => value instanceof JsonNumber)
    .transform(({ source }) => Number(source)),
  /** What the answer has; the words of `message` are free. */
  answer: object,
});
export type Case = z.infer<typeof caseShape>;

/** Cases that build on each other, over a database that is empty at first. */
const sectionShape = z.strictObject({
  name: z.string(),
  /** The level of the grammar that it needs. */
  level: z.enum(["core", "full"]),
  cases: z.array(caseShape),
});
export type Section = z.infer<typeof sectionShape>;

const file = z.strictObject({ about: z.string(), sections: z.array(sectionShape) });

/** The file of the cases, parsed. */
export function readCases(): z.infer<typeof file> {
  return file.parse(parseJson(readFileSync(casesFile, "utf8")));
}
