import { request } from "node:http";
import { buffer } from "node:stream/consumers";
import { z } from "zod";
import type { Snapshot } from "../access/snapshot.ts";
import type { Approval } from "../approvals/approval.ts";
import { type NoPreview, type PreviewQuery, previewQuery } from "../approvals/preview.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { hasOwnEngine } from "../gateway/own-engine.ts";
import { createGrammar } from "../query/grammar.ts";
import { engineSockets } from "../upstream/engine-process.ts";
import { HealthCheck } from "../upstream/health-check.ts";
import { parseTarget } from "../upstream/target.ts";

/** Rows as a Preview tells them, each as its JSON text. */
export interface ShownRows {
  readonly affected: number;
  readonly before: readonly string[];
  readonly after: readonly string[];
  /** The digest of all of them. */
  readonly digest: string;
}

/** Milliseconds that the engine may take. */
const TIMEOUT_MS = 60_000;

/** The socket of the engine behind this gateway, if there is one that answers. */
async function findEngine(loaded: LoadedConfiguration): Promise<string | undefined> {
  const { url } = loaded.configuration.upstream;
  const { socketPath } = url === undefined || hasOwnEngine(loaded) ? {} : parseTarget(url);
  const candidates = hasOwnEngine(loaded) ? engineSockets(loaded.serviceDirectory) : [socketPath];
  for (const candidate of candidates) {
    if (candidate === undefined) continue;
    const check = new HealthCheck({ target: parseTarget(`unix:${candidate}`) });
    await check.check();
    if (check.isEngine) return candidate;
  }
  return undefined;
}

async function send(
  socketPath: string,
  authorization: string | undefined,
  { body, limits }: PreviewQuery,
): Promise<{ status: number; text: string }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ status: number; text: string }>();
  const headers = {
    "content-type": "application/json",
    "x-gatehouse-limits": JSON.stringify(limits),
    ...(authorization === undefined ? {} : { authorization }),
  };
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  request({ socketPath, path: "/query", method: "POST", headers, signal, agent: false })
    .on("response", (answer) => {
      buffer(answer).then(
        (bytes) => resolve({ status: answer.statusCode ?? 0, text: bytes.toString("utf8") }),
        reject,
      );
    })
    .on("error", reject)
    .end(body);
  return promise;
}

/** For `JSON.parse`: numbers stay as they were written. */
export function keepNumbers(_key: string, value: unknown, context?: { readonly source?: string }) {
  return typeof value === "number" ? JSON.rawJSON(context?.source ?? String(value)) : value;
}

const rows = z.array(z.unknown().transform((row) => JSON.stringify(row)));
const shownShape = z.object({
  affected: z.unknown().transform((count) => Number(JSON.stringify(count))),
  before: rows,
  after: rows,
  digest: z.string(),
});
const refusedShape = z.object({ message: z.string() });

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
    const answer: unknown = JSON.parse(text, keepNumbers);
    if (status === 200) return shownShape.parse(answer);
    return { reason: `the database refuses it: ${refusedShape.parse(answer).message}` };
  } catch (error) {
    return { reason: `the engine does not answer: ${error instanceof Error ? error.message : ""}` };
  }
}
