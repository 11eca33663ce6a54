/** The scanner's front door: from the bytes of a query body to what it asks for. */

import { runCooperatively, type Steps, whileWanted } from "../cooperative-scheduling.ts";
import { requireEnd, requireUtf8 } from "../json/document.ts";
import { BodyReader } from "./body-reader.ts";
import type { Grammar } from "./grammar.ts";
import type { Collects } from "./operation-draft.ts";
import type { Query } from "./query.ts";
import { QueryReader } from "./query-reader.ts";

/** Bytes from which on a body is long: its scan takes a few milliseconds and is better sliced. */
export const LONG_BODY = 512 * 1024;

const STEP_BYTES = 32 * 1024;

/**
 * Reads a query body in one pass, without building its rows, and gives the databases and tables it
 * touches.
 *
 * @param collects whether each access is to tell what it says in detail (`Access.detail`)
 *
 * @throws QueryRefused for every body that is not of the grammar, and for every one that two JSON
 * parsers could read differently
 */
export function scan(body: Buffer, grammar: Grammar, collects: Collects = false): Query {
  const reader = new BodyReader(body, grammar.level === "full");
  try {
    requireUtf8(body);
    const queryReader = new QueryReader(reader, grammar, collects);
    queryReader.read();
    requireEnd(reader);
    return queryReader.query;
  } catch (error) {
    throw reader.asRefusal(error);
  }
}

/** As `scan`, in steps, each of which takes well under a millisecond by default. */
export function* scanInSteps(
  body: Buffer,
  grammar: Grammar,
  bytesPerStep = STEP_BYTES,
  collects: Collects = false,
): Steps<Query> {
  const reader = new BodyReader(body, grammar.level === "full");
  try {
    requireUtf8(body);
    yield;
    reader.pauseEvery(bytesPerStep);
    const queryReader = new QueryReader(reader, grammar, collects);
    const rest = queryReader.read();
    if (rest !== undefined) yield* rest;
    requireEnd(reader);
    return queryReader.query;
  } catch (error) {
    throw reader.asRefusal(error);
  }
}

/**
 * As `scan`, in slices of a few milliseconds, between which the event loop is free. A body that is
 * shorter than `LONG_BODY` is better scanned at once. The bytes must not change meanwhile.
 *
 * @param isWanted asked now and then: a scan that nobody waits for any more is given up
 * @returns undefined if it was given up
 */
export function scanInSlices(
  body: Buffer,
  grammar: Grammar,
  isWanted: () => boolean = () => true,
  collects: Collects = false,
): Promise<Query | undefined> {
  return runCooperatively(whileWanted(scanInSteps(body, grammar, STEP_BYTES, collects), isWanted));
}
