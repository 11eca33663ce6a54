import type { LoadedConfiguration } from "../config/load.ts";
import { createGrammar, type Grammar } from "../query/grammar.ts";
import { HealthCheck } from "../upstream/health-check.ts";
import { parseTarget } from "../upstream/target.ts";
import { hasOwnEngine } from "./own-engine.ts";

/** The interval between probes of a socket whose server has not identified itself. */
const AGAIN_MS = 1000;

export interface QueryInterface {
  readonly grammar: Grammar;
  /**
   * True for `gatehouse engine`: either the embedded one, or one on a Unix socket, which no one
   * else can reach.
   */
  readonly isEngine: boolean;
  /** Resolves when the upstream has been identified or does not answer. */
  readonly known: Promise<unknown>;
}

/**
 * Opens the grammar for `query.level`. The default is `full` for `gatehouse engine` and `core` for
 * other upstreams.
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
