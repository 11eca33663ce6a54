import { quoteName } from "../json/fault.ts";
import { batchKey } from "../query/grammar.ts";
import type { CellValue, Operation } from "../query/operation-types.ts";
import { isOperationName } from "../query/operations.ts";
import { EngineRefusal } from "./refusal.ts";
import { ExactNumber, has64Bits } from "./sql/values.ts";

export interface ParsedQuery {
  readonly isBatch: boolean;
  readonly operations: readonly Operation[];
}

/** Integers that a double cannot hold become BigInt, so that 64-bit integers stay exact. */
export function parseBody(body: Buffer): ParsedQuery {
  return parsed(JSON.parse(body.toString("utf8"), reviveNumber));
}

/**
 * For databases with numbers of any length. A number that a double would write differently becomes
 * BigInt if it is an integer of moderate length, else `ExactNumber`.
 */
export function parseBodyExactly(body: Buffer): ParsedQuery {
  const text = body.toString("utf8");
  // Reviving each value takes several times as long as parsing.
  return parsed(inexact.test(text) ? JSON.parse(text, reviveExactly) : JSON.parse(text));
}

/** Matches every number that a double may not return as written, and also some strings. */
const inexact = /\d{16}|\d[.eE]/;

export function parseCell(text: string): CellValue {
  return JSON.parse(text, reviveExactly);
}

/** The scanner has checked the fields against the grammar. */
type Scanned = Readonly<Record<string, never>>;

function parsed(body: Scanned): ParsedQuery {
  const elements: readonly Scanned[] | undefined = body[batchKey];
  return {
    isBatch: elements !== undefined,
    operations: (elements ?? [body]).map(operationOf),
  };
}

function operationOf(keyed: Scanned): Operation {
  for (const [name, fields] of Object.entries(keyed)) {
    if (isOperationName(name)) return { name, fields };
  }
  throw new Error("The scanner accepted an unknown operation");
}

/** `context` holds the source text of a number (ECMAScript, JSON.parse source text access). */
function reviveNumber(key: string, value: unknown, context?: { source: string }): unknown {
  if (typeof value !== "number") return value;
  const source = context?.source ?? "";
  if (!isInteger(source)) {
    if (!Number.isFinite(value)) throw outOfRange("a number", key);
    return value;
  }
  if (Number.isSafeInteger(value)) return value;
  const integer = source.length > 20 ? undefined : BigInt(source);
  if (integer !== undefined && has64Bits(integer)) return integer;
  // As answers spell a double.
  if (String(value) === source) return value;
  throw outOfRange("an integer", key);
}

function reviveExactly(_key: string, value: unknown, context?: { source: string }): unknown {
  if (typeof value !== "number") return value;
  const source = context?.source ?? "";
  if (!isInteger(source)) return String(value) === source ? value : new ExactNumber(source);
  if (Number.isSafeInteger(value)) return value;
  return source.length > 20 ? new ExactNumber(source) : BigInt(source);
}

function isInteger(source: string): boolean {
  return /^-?\d+$/.test(source);
}

function outOfRange(what: string, key: string): EngineRefusal {
  const path = /^\d+$/.test(key) ? "" : ` under ${quoteName(key)}`;
  return new EngineRefusal(
    "number_out_of_range",
    `The body contains ${what} out of range${path}: integers have 64 bits, other numbers are doubles`,
  );
}
