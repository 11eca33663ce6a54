import type { LoadedConfiguration } from "../config/load.ts";
import { createGrammar, type Grammar } from "../query/grammar.ts";
import { HealthCheck } from "../upstream/health-check.ts";
import { parseTarget } from "../upstream/target.ts";
import { hasOwnEngine } from "./own-engine.ts";

/** The interval between probes of a socket whose server has not identified itself. */
const AGAIN_MS = 1000;

export interface QueryInterface {
  readonly grammar: Grammar;
  /** True for `gatehouse engine`: embedded, or on a Unix socket that no one else can reach. */
  readonly isEngine: boolean;
  /** Resolves when the upstream has been identified or does not answer. */
  readonly identified: Promise<unknown>;
}

/** The default level is `full` for `gatehouse engine` and `core` for other upstreams. */
export function openGrammar(loaded: LoadedConfiguration): QueryInterface {
  const { query } = loaded.configuration;
  const options = { extraFields: query.extra_fields, operations: query.operations };
  const full = createGrammar({ ...options, level: "full" });
  const core = createGrammar({ ...options, level: "core" });
  const { isEngine, identified } = engineBehind(loaded);
  return {
    identified,
    get isEngine() {
      return isEngine();
    },
    get grammar() {
      return (query.level ?? (isEngine() ? "full" : "core")) === "full" ? full : core;
    },
  };
}

function engineBehind(loaded: LoadedConfiguration) {
  const { databases, url } = loaded.configuration.upstream;
  const isOwn = hasOwnEngine(loaded);
  const target = url === undefined || isOwn ? undefined : parseTarget(url);
  if (databases.length > 0 || target?.socketPath === undefined) {
    const isEngine = isOwn && databases.length === 0;
    return { isEngine: () => isEngine, identified: Promise.resolve() };
  }
  const check = new HealthCheck({ target });
  let askedAt = performance.now();
  return {
    identified: check.check(),
    isEngine() {
      if (check.isEngine === undefined && performance.now() - askedAt > AGAIN_MS) {
        askedAt = performance.now();
        void check.check();
      }
      return check.isEngine === true;
    },
  };
}
