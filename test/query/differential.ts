/** The parser beside other parsers: for no body may it see something that one of them does not. */

import { isDeepStrictEqual } from "node:util";
import { runAtOnce } from "../../src/core/base/cooperative-scheduling.ts";
import { parseQuery, parseQueryInSteps } from "../../src/core/query/parse.ts";
import type { Query } from "../../src/core/query/query.ts";
import { QueryRefused } from "../../src/core/query/refusal.ts";
import { gist, plain } from "./kit.ts";
import {
  habits,
  hasHiddenFault,
  type JsonNode,
  parsePlainly,
  type SeenAccess,
  seenBy,
} from "./plain-json.ts";
import { parseForReference, referenceAccesses } from "./reference.ts";

const strictDecoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const laxDecoder = new TextDecoder("utf-8");

function attempt(read: () => Query): Query | QueryRefused {
  try {
    return read();
  } catch (error) {
    if (error instanceof QueryRefused) return error;
    throw error;
  }
}

/** The text of a body; undefined if it is not UTF-8 or has a byte-order mark. */
function textOf(body: Buffer): string | undefined {
  try {
    const text = strictDecoder.decode(body);
    return text.startsWith("\ufeff") ? undefined : text;
  } catch {
    return undefined;
  }
}

/** The accesses that a body should have; undefined if it should be refused. */
function expectedAccesses(body: Buffer): object[] | undefined {
  const text = textOf(body);
  const node = text === undefined ? undefined : parsePlainly(text);
  if (text === undefined || node === undefined || hasHiddenFault(node)) return undefined;
  return referenceAccesses(parseForReference(text));
}

function seenByParser({ accesses }: Query): SeenAccess[] {
  return accesses.map(({ operation, database, tables }) => ({ operation, database, tables }));
}

/** The first habit by which a parser sees something else than the parser. */
function dissenter(body: Buffer, query: Query): string | undefined {
  const expected = seenByParser(query);
  for (const decoded of [laxDecoder.decode(body), body.toString("latin1")]) {
    const node: JsonNode | undefined = parsePlainly(decoded);
    for (const habit of habits) {
      const seen = node && seenBy(habit, node);
      if (!isDeepStrictEqual(seen, expected)) return habit.name;
    }
  }
  return undefined;
}

interface Judgement {
  readonly isAccepted: boolean;
  readonly fault: string | undefined;
}

export function judgeBody(body: Buffer, bytesPerStep = 1): Judgement {
  const parsed = attempt(() => parseQuery(body, plain));
  const stepped = attempt(() => runAtOnce(parseQueryInSteps(body, plain, bytesPerStep)));
  const isAccepted = !(parsed instanceof QueryRefused);
  if (!isDeepStrictEqual(outcome(parsed), outcome(stepped))) {
    return { isAccepted, fault: "differs when sliced" };
  }
  return { isAccepted, fault: misreading(body, isAccepted ? parsed : undefined) };
}

function misreading(body: Buffer, query: Query | undefined): string | undefined {
  const expected = expectedAccesses(body);
  if (!isDeepStrictEqual(query?.accesses.map(gist), expected)) {
    return expected === undefined ? "accepted, but to be refused" : "not read as it should be";
  }
  const habit = query && dissenter(body, query);
  return habit && `read differently by a parser that is ${habit}`;
}

function outcome(parsed: Query | QueryRefused): unknown {
  if (!(parsed instanceof QueryRefused)) return parsed;
  return { code: parsed.code, message: parsed.message };
}
