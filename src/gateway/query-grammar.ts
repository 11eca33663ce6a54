import type { LoadedConfiguration } from "../config/load.ts";
import { createGrammar, type Grammar } from "../query/grammar.ts";
import { HealthCheck } from "../upstream/backend.ts";
import { parseTarget } from "../upstream/target.ts";
import { hasOwnEngine } from "./own-engine.ts";

/** Milliseconds after which a socket that did not tell what listens there is asked again. */
const AGAIN_MS = 1000;

/** What queries are read by now, and what is behind. */
export interface QueryInterface {
  readonly grammar: Grammar;
  /**
   * True if `gatehouse engine` is behind: the gateway's own, or one that answers on a Unix socket,
   * which nobody else reaches.
   */
  readonly isEngine: boolean;
  /** Resolves when it was found out what is behind, or that nothing answers. */
  readonly known: Promise<unknown>;
}

/**
 * Opens the grammar of a configuration: as `query.level` says, else `full` before `gatehouse engine`
 * and `core` before any other upstream.
 */
export function openGrammar(loaded: LoadedConfiguration): QueryInterface {
  const { query } = loaded.configuration;
  const options = { extraFields: query.extra_fields, operations: query.operations };
  const full = createGrammar({ ...options, level: "full" });
  const core = createGrammar({ ...options, level: "core" });
  const { isEngine, known } = engineBehind(loaded);
  return {
    known,
    get isEngine() {
      return isEngine();
    },
    get grammar() {
      return (query.level ?? (isEngine() ? "full" : "core")) === "full" ? full : core;
    },
  };
}

/** Tells whether `gatehouse engine` is behind. */
interface EngineWatch {
  isEngine(): boolean;
  readonly known: Promise<unknown>;
}

function always(isEngine: boolean): EngineWatch {
  return { isEngine: () => isEngine, known: Promise.resolve() };
}

function engineBehind(loaded: LoadedConfiguration): EngineWatch {
  const { databases, url } = loaded.configuration.upstream;
  if (databases.length > 0) return always(false);
  if (hasOwnEngine(loaded)) return always(true);
  const target = url === undefined ? undefined : parseTarget(url);
  if (target?.socketPath === undefined) return always(false);
  return watchForEngine(new HealthCheck({ target }));
}

/** Asks what listens, until it has answered. */
function watchForEngine(check: HealthCheck): EngineWatch {
  let askedAt = Number.NEGATIVE_INFINITY;
  const ask = () => {
    askedAt = performance.now();
    return check.check();
  };
  const known = ask();
  return {
    known,
    isEngine() {
      const { isEngine } = check;
      if (isEngine === undefined && performance.now() - askedAt > AGAIN_MS) void ask();
      return isEngine === true;
    },
  };
}
