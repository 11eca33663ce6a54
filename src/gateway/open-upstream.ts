import type { LoadedConfiguration } from "../config/load.ts";
import type { Log } from "../observe/log.ts";
import type { BackendOptions } from "../upstream/backend.ts";
import {
  type BackendGroup,
  DatabaseRouting,
  openBackendGroup,
} from "../upstream/database-routing.ts";
import { QueryMetrics } from "../upstream/query-link.ts";
import { parseTarget, type UpstreamTarget } from "../upstream/target.ts";
import { dataDirectoryOf, type EngineTarget, hasOwnEngine } from "./own-engine.ts";

/** The databases behind, and the ways to them. */
export interface Upstream {
  readonly routing: DatabaseRouting;
  readonly metrics: QueryMetrics;
  /** Where the gateway's own engine keeps SQLite files; undefined if it does not. */
  readonly dataDirectory: string | undefined;
}

function groupOptions(
  { configuration: { upstream } }: LoadedConfiguration,
  log: Log,
): BackendOptions {
  return {
    connections: upstream.connections,
    connectTimeout: upstream.connect_timeout * 1000,
    responseTimeout: upstream.response_timeout * 1000,
    healthPath: upstream.health_path,
    healthInterval: upstream.health_interval * 1000,
    authorization: upstream.authorization,
    metrics: new QueryMetrics(),
    onChange(target, isLive) {
      if (isLive) log.info({ target }, "an upstream is back and takes queries again");
      else log.warn({ target }, "an upstream failed and takes no queries until a check passes");
    },
  };
}

interface Where {
  readonly url?: string | undefined;
  readonly urls?: readonly string[] | undefined;
}

interface Targets {
  readonly first: UpstreamTarget;
  readonly others: readonly UpstreamTarget[];
}

/** The targets of `url` or `urls`, the first of them apart; undefined if neither is there. */
function targetsOf({ url, urls = [] }: Where): Targets | undefined {
  const [first, ...others] = (url === undefined ? urls : [url]).map(parseTarget);
  return first === undefined ? undefined : { first, others };
}

/**
 * Opens the configured upstreams, or an engine of the gateway's own in the place of the first; puts
 * their closing on the stack.
 *
 * @param engine where the engine listens
 */
export async function openUpstream(
  loaded: LoadedConfiguration,
  engine: EngineTarget,
  log: Log,
  opened: AsyncDisposableStack,
): Promise<Upstream> {
  const { upstream } = loaded.configuration;
  const options = groupOptions(loaded, log);
  function openGroup({ first, others }: Targets, own: BackendOptions = options): BackendGroup {
    const group = openBackendGroup(first, others, own);
    opened.defer(() => group.close());
    return group;
  }

  const configured = hasOwnEngine(loaded) ? undefined : targetsOf(upstream);
  // The configured path is that of the operator's own servers, not the engine's.
  const home =
    configured === undefined
      ? openGroup({ first: await engine(), others: [] }, { ...options, healthPath: "/healthz" })
      : openGroup(configured);
  const elsewhere = new Map<string, BackendGroup>();
  for (const { databases, ...where } of upstream.databases) {
    const targets = targetsOf(where);
    if (targets === undefined) continue;
    const group = openGroup(targets);
    for (const database of databases) elsewhere.set(database, group);
  }
  const routing = new DatabaseRouting(home, elsewhere);
  return { routing, metrics: options.metrics, dataDirectory: dataDirectoryOf(loaded) };
}
