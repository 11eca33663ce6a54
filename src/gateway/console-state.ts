import { diffSnapshots } from "../access/diff.ts";
import { withoutPassword } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { describeVersion, type LoadedVersion, REMEMBERED } from "../console/access-history.ts";
import type { GatewayState, StoreState } from "../console/options.ts";
import { version } from "../product.ts";
import { Refusal } from "../refusal.ts";
import type { StoreReplica } from "../store/open.ts";
import type { Gateway } from "./gateway.ts";
import { hasOwnEngine, ownDatabaseUrl } from "./own-engine.ts";
import type { Listener } from "./server.ts";

/** What the console shows of a gateway, as it is by now. */
export interface ShownGateway {
  readonly gateway: Gateway;
  readonly listener: Pick<Listener, "secure" | "originOf">;
  readonly store: StoreReplica | undefined;
}

async function storeStateOf({ store, replica }: StoreReplica): Promise<StoreState> {
  const { name: own, isReached, lag } = replica;
  // Loaded here, since a gateway on files has no use for it.
  const { readStatus } = await import("../store/status.ts");
  try {
    return { own, isReached, lag, status: await readStatus(store.database) };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { own, isReached: false, lag, status: undefined };
  }
}

/** What a gateway is by now. */
export async function stateOf(
  { gateway, listener, store }: ShownGateway,
  loaded: LoadedConfiguration,
): Promise<GatewayState> {
  const { routing, keys } = gateway;
  const upstreams = routing.targets.map(async (target) => {
    const { busy, waiting, isLive } = target;
    const databases = routing.databasesAt(target);
    // The gateway's own engine listens on a private socket, which says nothing to people.
    const isOwnEngine = databases === undefined && hasOwnEngine(loaded);
    const name = isOwnEngine ? withoutPassword(ownDatabaseUrl(loaded)) : target.name;
    return { name, databases, busy, waiting, isLive, isUp: await target.isUp() };
  });
  const { secure } = listener;
  return {
    version,
    configurationFailure: (await gateway.shared.condition()).configurationFailure,
    upstreams: await Promise.all(upstreams),
    algorithm: keys.ring.algorithm,
    keys: keys.ring.keys,
    keysFailure: keys.failure,
    certificate: secure && {
      names: secure.certificate.names,
      expires: secure.certificate.expires,
      failure: secure.failure,
    },
    store: store && (await storeStateOf(store)),
  };
}

/** Reads the last versions of users and grants out of a store, the newest first. */
async function readVersions({ store, replica }: StoreReplica): Promise<LoadedVersion[]> {
  const { versionsBack } = await import("../store/access-versions.ts");
  const last: LoadedVersion[] = [];
  const { access, position } = replica.state;
  const versions = versionsBack(store.database.query, { access, position });
  for await (const { at, version: number, author, before, after } of versions) {
    const version = { at: Math.floor(at.getTime() / 1000), version: String(number), author };
    const diff = diffSnapshots(before, after);
    if (last.push(describeVersion({ ...version, before, after, diff })) === REMEMBERED) break;
  }
  return last;
}

/** Reads the last versions of users and grants; undefined where only the present one is kept. */
export function versionsIn({
  store,
  gateway,
}: ShownGateway): (() => Promise<LoadedVersion[]>) | undefined {
  const isKept = store !== undefined && gateway.configuration.store.access === "store";
  return isKept ? () => readVersions(store) : undefined;
}
