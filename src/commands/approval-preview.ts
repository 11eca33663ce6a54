import { limitsText } from "../access/query-limits.ts";
import type { Snapshot } from "../access/snapshot.ts";
import type { Approval } from "../approvals/approval.ts";
import { type NoPreview, type PreviewQuery, previewQuery } from "../approvals/preview.ts";
import { readShownRows, type ShownRows } from "../approvals/shown-rows.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { createGrammar } from "../query/grammar.ts";
import { askTarget, type WholeAnswer } from "../upstream/ask-target.ts";
import { parseTarget } from "../upstream/target.ts";
import { findEngine } from "./database-schema.ts";

/** Milliseconds that the engine may take. */
const TIMEOUT_MS = 60_000;

function send(
  socketPath: string,
  authorization: string | undefined,
  { body, limits }: PreviewQuery,
): Promise<WholeAnswer> {
  return askTarget(parseTarget(`unix:${socketPath}`), {
    ...{ path: "/query", method: "POST", body, agent: false },
    headers: {
      "content-type": "application/json",
      "x-gatehouse-limits": limitsText(limits),
      ...(authorization === undefined ? {} : { authorization }),
    },
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
}

/** Asks the engine behind for the Preview of what waits. */
export async function readPreview(
  loaded: LoadedConfiguration,
  snapshot: Snapshot,
  approval: Approval,
  body: Buffer,
): Promise<ShownRows | NoPreview> {
  const { query, upstream } = loaded.configuration;
  const options = { extraFields: query.extra_fields, operations: query.operations };
  const preview = previewQuery(snapshot, createGrammar(options), approval, body);
  if ("reason" in preview) return preview;
  const socketPath = await findEngine(loaded);
  if (socketPath === undefined) return { reason: "no gatehouse engine answers behind the gateway" };
  try {
    const { status, text } = await send(socketPath, upstream.authorization, preview);
    return readShownRows(status, text);
  } catch (error) {
    return { reason: `the engine does not answer: ${error instanceof Error ? error.message : ""}` };
  }
}
