import type { Test } from "tap";
import { loadConfiguration } from "../../src/core/config/load.ts";
import {
  openReplica,
  openStore,
  operateStore,
  type StoreOperator,
  type StoreReplica,
} from "../../src/features/store/open.ts";
import type { TestStore } from "./kit.ts";

async function connect(t: Test, { home }: TestStore) {
  const opened = new AsyncDisposableStack();
  t.teardown(() => opened.disposeAsync());
  const { configuration } = loadConfiguration({
    config: `${home}/gateway.toml`,
    cwd: home,
    env: { GATEHOUSE_HOME: home },
  });
  const store = await openStore(configuration);
  opened.defer(() => store.close());
  return { configuration, store, opened };
}

/** As a command opens the store, without a lease. */
export async function openOperator(t: Test, of: TestStore): Promise<StoreOperator> {
  return operateStore((await connect(t, of)).store);
}

/** A replica in the test's own process, without a gateway. */
export async function openOwn(t: Test, of: TestStore): Promise<StoreReplica> {
  const { configuration, store, opened } = await connect(t, of);
  const observers = { onUnreachable: () => {}, onReachable: () => {} };
  return openReplica(store, configuration, observers, opened);
}
