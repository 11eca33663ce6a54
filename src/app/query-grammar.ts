import type { LoadedConfiguration } from "../core/config/load.ts";
import type { QueryInterface } from "../core/http/gateway.ts";
import { createGrammar } from "../core/query/grammar.ts";
import { hasOwnEngine } from "./own-engine.ts";

/** The default level is `full` for the engine and `core` for foreign upstreams. */
export function openGrammar(loaded: LoadedConfiguration): QueryInterface {
  const { query, upstream } = loaded.configuration;
  const isEngine = hasOwnEngine(loaded) && upstream.databases.length === 0;
  const level = query.level ?? (isEngine ? "full" : "core");
  const { extra_fields: extraFields, operations } = query;
  return { isEngine, grammar: createGrammar({ extraFields, operations, level }) };
}
