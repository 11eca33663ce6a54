import type { Configuration } from "../config/schema.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { Store, StoreReplica } from "../store/open.ts";
import type { Counts } from "./shared.ts";

/**
 * Opens what several replicas share, and puts its closing on the stack; undefined where files hold
 * everything, and then nothing of it is loaded.
 *
 * @throws StoreError, StoreKeyError or StoreContentError if it cannot be used
 */
export async function openSharedStore(
  configuration: Configuration,
  { log, metrics }: { log: Log; metrics: Metrics | undefined },
  opened: AsyncDisposableStack,
): Promise<StoreReplica | undefined> {
  if (configuration.store.url === undefined) return undefined;
  const { openReplica, openStore } = await import("../store/open.ts");
  const store = await openStore(configuration);
  opened.defer(() => store.close());
  const { max_staleness: seconds } = configuration.store;
  const shared = await openReplica(
    store,
    configuration,
    {
      onLost: (reason) =>
        log.error(
          { reason },
          `the store is out of reach: nothing can be changed, and in ${seconds} seconds nothing is decided`,
        ),
      onFound: () => log.info("the store is there again"),
    },
    opened,
  );
  metrics?.showStore(shared.replica);
  return shared;
}

/**
 * Opens what all replicas count together, and puts its closing on the stack; undefined where each
 * counts for itself.
 *
 * @param known the store, if it is open already
 * @throws as `openSharedStore`
 */
export async function openSharedCounts(
  configuration: Configuration,
  known: Store | undefined,
  opened: AsyncDisposableStack,
): Promise<Counts | undefined> {
  if (configuration.store.url === undefined) return undefined;
  const { openStore } = await import("../store/open.ts");
  const { openCounts } = await import("../store/shared-counts.ts");
  const store = known ?? (await openStore(configuration));
  if (known === undefined) opened.defer(() => store.close());
  return openCounts(store, opened);
}
