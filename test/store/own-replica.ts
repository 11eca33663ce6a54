import type { Test } from "tap";
import { loadConfiguration } from "../../src/config/load.ts";
import { openReplica, openStore, type StoreReplica } from "../../src/store/open.ts";
import type { TestStore } from "./kit.ts";

/** A replica in the test's own process, without a gateway. */
export async function openOwn(t: Test, { home }: TestStore): Promise<StoreReplica> {
  const opened = new AsyncDisposableStack();
  t.teardown(() => opened.disposeAsync());
  const { configuration } = loadConfiguration({
    ...{ config: `${home}/gateway.toml`, cwd: home, env: { GATEHOUSE_HOME: home } },
  });
  const store = await openStore(configuration);
  opened.defer(() => store.close());
  const observers = { onLost: () => {}, onFound: () => {} };
  return openReplica(store, configuration, observers, opened);
}
