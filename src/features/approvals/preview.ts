import { z } from "zod";
import type { Subject } from "../../core/access/grant.ts";
import { decideQuery } from "../../core/access/policy.ts";
import { filterAdditions } from "../../core/access/rights.ts";
import type { Snapshot } from "../../core/access/snapshot.ts";
import { runCooperatively, type Steps } from "../../core/base/cooperative-scheduling.ts";
import { parseUnrounded } from "../../core/json/exact.ts";
import { addToBytes } from "../../core/query/additions.ts";
import type { Grammar } from "../../core/query/grammar.ts";
import type { QueryLimit } from "../../core/query/limits.ts";
import { operations } from "../../core/query/operations.ts";
import { parseQuery, parseQueryInSteps, STEP_BYTES } from "../../core/query/parse.ts";
import type { Query } from "../../core/query/query.ts";
import { QueryRefused } from "../../core/query/refusal.ts";
import type { Approval, KeptQuery } from "./approval.ts";

interface PreviewQuery {
  readonly body: Buffer;
  readonly query: Query;
  readonly limits: readonly QueryLimit[];
}

export interface NoPreview {
  readonly reason: string;
}

const SHOWN_ROWS = 100;

/** The Preview of a pending query, limited by the requester's current rights and row filters. */
export async function previewQuery(
  snapshot: Snapshot,
  grammar: Grammar,
  { via, client, operations: [only], operationCount }: Approval,
  { body, asker }: KeptQuery,
): Promise<PreviewQuery | NoPreview> {
  if (
    operationCount !== 1 ||
    only === undefined ||
    !Object.hasOwn(operations.Preview.fields, only.operation)
  ) {
    return { reason: "only a single Insert, Update, Delete or Upsert has a Preview" };
  }
  const preview = Buffer.concat([Buffer.from('{"Preview":'), body, Buffer.from("}")]);
  try {
    const query = await runCooperatively(readInSteps(preview, grammar));
    const context = { via, client, now: Date.now(), isEngine: true, isApproved: true };
    const decided = decideQuery(snapshot, asker, query, context);
    const { allowed, reason, decisions, limits, bytewise = [] } = decided;
    if (!allowed) return { reason: `${asker.username} may not see the rows (${reason})` };
    const additions = filterAdditions(decisions);
    const read = { body: preview, query };
    const filtered =
      additions.length === 0
        ? read
        : await runCooperatively(addToBytes(read, additions, grammar, STEP_BYTES));
    // The approver reads these rows, whose number does not count for the one who asks.
    const others = limits.filter((limit) => limit.rows === undefined);
    return { ...filtered, limits: [...others, ...bytewise, { touched: "tell" }] };
  } catch (error) {
    if (error instanceof QueryRefused) return { reason: error.message };
    throw error;
  }
}

function* readInSteps(body: Buffer, grammar: Grammar): Steps<Query> {
  const query = yield* parseQueryInSteps(body, grammar, STEP_BYTES);
  yield* query.operations.parse();
  return query;
}

/** Why an approver may not see the rows of these tables; undefined if all rows are readable. */
export function whyRowsHidden(
  snapshot: Snapshot,
  grammar: Grammar,
  subject: Subject,
  { operations }: Pick<Approval, "operations">,
): string | undefined {
  const context = { via: "query", client: undefined, now: Date.now(), isEngine: true } as const;
  const hidden = operations
    .flatMap(({ database, tables }) => tables.map((table) => ({ database, table })))
    .find(({ database, table }) => {
      const select = { database, from: table, columns: ["*"], limit: SHOWN_ROWS };
      const query = parseQuery(Buffer.from(JSON.stringify({ Select: select })), grammar);
      const { allowed, decisions } = decideQuery(snapshot, subject, query, context);
      return !allowed || filterAdditions(decisions).length > 0;
    });
  return hidden && `you may not read all of ${hidden.database}.${hidden.table}`;
}

/** Rows of a Preview, each as JSON text. */
const rows = z.array(z.unknown().transform((row) => JSON.stringify(row)));
const shownShape = z.object({
  affected: z.unknown().transform((count) => Number(JSON.stringify(count))),
  before: rows,
  after: rows,
  digest: z.string(),
});
export type PreviewRows = Readonly<z.output<typeof shownShape>>;

/** The number of rows that are shown, before and after a change counted once. */
export function countShown({ before, after }: PreviewRows): number {
  return Math.max(before.length, after.length);
}

const refusedShape = z.object({ message: z.string() });

/** Reads the engine's answer to a Preview. @throws Error for any other answer */
export function readPreviewRows(status: number, text: string): PreviewRows | NoPreview {
  const answer: unknown = parseUnrounded(text);
  if (status === 200) return shownShape.parse(answer);
  return { reason: refusedPreview(refusedShape.parse(answer).message) };
}

export function refusedPreview(message: string): string {
  return `the database refuses it: ${message}`;
}

/** Characters that show nothing, or that change how others are shown. U+2800 is an empty Braille cell. */
const invisible = /[^\P{C}\n\t]|[\p{Default_Ignorable_Code_Point}\u2028\u2029\u2800]/gu;

/** JSON text with invisible characters escaped. */
export function visibleJson(json: string): string {
  return json.replace(invisible, (character) =>
    Array.from({ length: character.length }, (_, at) => character.charCodeAt(at))
      .map((code) => `\\u${code.toString(16).padStart(4, "0")}`)
      .join(""),
  );
}
