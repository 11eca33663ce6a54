import type { LoadedConfiguration } from "../config/load.ts";
import { createGrammar, type Grammar } from "../query/grammar.ts";
import { HealthCheck } from "../upstream/health-check.ts";
import { parseTarget } from "../upstream/target.ts";
import { hasOwnEngine } from "./own-engine.ts";

/** Milliseconds after which a socket that did not tell what listens there is asked again. */
const AGAIN_MS = 1000;

/** Gives the grammar that queries are read by now. */
export type GrammarSource = () => Grammar;

/**
 * Opens the grammar of a configuration: as `query.level` says, else `full` before `gatehouse engine`
 * (the gateway's own, or one that answers on a Unix socket) and `core` before any other upstream.
 */
export function openGrammar(loaded: LoadedConfiguration): GrammarSource {
  const { query, upstream } = loaded.configuration;
  const options = { extraFields: query.extra_fields, operations: query.operations };
  const full = createGrammar({ ...options, level: "full" });
  const core = createGrammar({ ...options, level: "core" });
  if (query.level !== undefined) return () => (query.level === "full" ? full : core);
  if (upstream.databases.length > 0) return () => core;
  if (hasOwnEngine(loaded)) return () => full;
  if (upstream.url === undefined) return () => core;
  const target = parseTarget(upstream.url);
  if (target.socketPath === undefined) return () => core;
  const isEngine = watchForEngine(new HealthCheck({ target }));
  return () => (isEngine() ? full : core);
}

/** Asks what listens, until it has answered. */
function watchForEngine(check: HealthCheck): () => boolean {
  let askedAt = Number.NEGATIVE_INFINITY;
  const ask = () => {
    askedAt = performance.now();
    void check.check();
  };
  ask();
  return () => {
    const { isEngine } = check;
    if (isEngine === undefined && performance.now() - askedAt > AGAIN_MS) ask();
    return isEngine === true;
  };
}
