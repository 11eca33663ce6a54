import { readFileSync } from "node:fs";
import * as z from "zod";

/** JSON whose numbers keep their digits, to compare answers with expected ones. */

export class JsonNumber {
  readonly source: string;

  constructor(source: string) {
    this.source = source;
  }
}

export type Json = null | boolean | string | JsonNumber | Json[] | JsonObject;

export interface JsonObject {
  [name: string]: Json;
}

export function isObject(value: unknown): value is JsonObject {
  return (
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    !(value instanceof JsonNumber)
  );
}

/** @throws SyntaxError */
export function parseJson(text: string): Json {
  return JSON.parse(text, (_key, value: unknown, context?: { source: string }) =>
    typeof value === "number" ? new JsonNumber(context?.source ?? "") : value,
  );
}

/** Formats a value with a space after `:` and `,` for readability. */
export function writeJson(value: Json): string {
  if (value instanceof JsonNumber) return value.source;
  if (Array.isArray(value)) return `[${value.map(writeJson).join(", ")}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const members = Object.entries(value).map(
    ([name, member]) => `${JSON.stringify(name)}: ${writeJson(member)}`,
  );
  return `{${members.join(", ")}}`;
}

/** True if two numbers have the same value in any notation, such as `1.50`, `1.5` and `15e-1`. */
export function isSameNumber(one: JsonNumber, other: JsonNumber): boolean {
  return canonical(one) === canonical(other);
}

/** Sign, digits without leading and trailing zeros, and the exponent of the last digit. */
function canonical({ source }: JsonNumber): string {
  const [, sign = "", whole = "", fraction = "", power = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(source) ?? [];
  const digits = (whole + fraction).replace(/^0+/, "");
  const kept = digits.replace(/0+$/, "");
  if (kept === "") return "0";
  return `${sign}${kept}e${Number(power) - fraction.length + digits.length - kept.length}`;
}

/** The conformance cases in `schemas/query.cases.json`. */

export const casesFile = new URL("../../schemas/query.cases.json", import.meta.url);

const object = z.custom<JsonObject>((value) => isObject(value));

const caseShape = z.strictObject({
  name: z.string(),
  /** The body; its database `main` stands for one created for the section. */
  send: object,
  status: z
    .custom<JsonNumber>((value) => value instanceof JsonNumber)
    .transform(({ source }) => Number(source)),
  /** The expected answer; the text of `message` is not compared. */
  answer: object,
});
export type Case = z.infer<typeof caseShape>;

/** Cases that build on each other, on a database that is empty at first. */
const sectionShape = z.strictObject({
  name: z.string(),
  level: z.enum(["core", "full"]),
  cases: z.array(caseShape),
});
export type Section = z.infer<typeof sectionShape>;

const file = z.strictObject({ about: z.string(), sections: z.array(sectionShape) });

export function readCases(): z.infer<typeof file> {
  return file.parse(parseJson(readFileSync(casesFile, "utf8")));
}
