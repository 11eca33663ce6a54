/** The cases that a database which speaks the queries has to answer, as `schemas/query.cases.json` has them. */

import { readFileSync } from "node:fs";
import * as z from "zod";
import type { Level } from "../query/kind.ts";
import { isObject, JsonNumber, type JsonObject, parseJson } from "./exact-json.ts";

/** A query and the answer to it. */
export interface Case {
  readonly name: string;
  /** The body; its database `main` stands for one that is made for the section. */
  readonly send: JsonObject;
  readonly status: number;
  /** What the answer has; the words of `message` are free. */
  readonly answer: JsonObject;
}

/** Cases that build on each other, over a database that is empty at first. */
export interface Section {
  readonly name: string;
  /** The level of the grammar that it needs. */
  readonly level: Level;
  readonly cases: readonly Case[];
}

/** Where the cases stand. */
export const casesFile = new URL("../../schemas/query.cases.json", import.meta.url);

const object = z.custom<JsonObject>((value) => isObject(value));
const status = z.custom<JsonNumber>((value) => value instanceof JsonNumber);
const file = z.strictObject({
  about: z.string(),
  sections: z.array(
    z.strictObject({
      name: z.string(),
      level: z.enum(["core", "full"]),
      cases: z.array(
        z.strictObject({
          name: z.string(),
          send: object,
          status: status.transform(({ source }) => Number(source)),
          answer: object,
        }),
      ),
    }),
  ),
});

/** The file of the cases, parsed. */
export function readCases(): { readonly about: string; readonly sections: readonly Section[] } {
  return file.parse(parseJson(readFileSync(casesFile, "utf8")));
}
