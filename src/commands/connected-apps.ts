import type { LoadedConfiguration } from "../config/load.ts";
import {
  type Connection,
  connectionsOf,
  isConnected,
  isTokenOf,
} from "../oauth/server/connections.ts";
import { findStateIn, stateDirectoryOf } from "../oauth/server/state-file.ts";
import type { StateStore } from "../oauth/server/state-store.ts";
import { loadFor } from "./load.ts";
import { activityOf, noteChanges, readAccess, revocationsOf } from "./operator.ts";
import type { CommonOptions } from "./options.ts";
import { momentOf, momentOrNull, plainly, print, printList, warn } from "./output.ts";

/** Works on what the authorization server has kept; on nothing where it never has. */
async function withState<Result>(
  loaded: LoadedConfiguration,
  work: (store: StateStore) => Promise<Result>,
  nothing: Result,
): Promise<Result> {
  const { configuration, serviceDirectory } = loaded;
  if (configuration.store.url !== undefined) {
    const { operateStore, withStore } = await import("../store/open.ts");
    return withStore(loaded, async (store) =>
      work((await operateStore(store, warn)).authorization.store),
    );
  }
  const store = findStateIn(stateDirectoryOf(serviceDirectory));
  if (store === undefined) return nothing;
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}

/** The apps that have access now, as the gateway would judge it. */
async function connected(loaded: LoadedConfiguration): Promise<Connection[]> {
  const snapshot = await readAccess(loaded);
  const revocations = await (await revocationsOf(loaded)).read();
  const context = { snapshot: () => snapshot, revocations };
  const live = async (store: StateStore) =>
    (await connectionsOf(store)).filter((one) => isConnected(context, one));
  return withState(loaded, live, []);
}

/** `gatehouse token list`: the apps that users have let in. */
export async function listConnections(options: CommonOptions): Promise<void> {
  const loaded = loadFor(options);
  const activity = await activityOf(loaded);
  const views = (await connected(loaded)).map((one) => ({
    username: one.username,
    client: one.clientId,
    app: one.appName,
    database: one.database,
    read_only: one.readOnly,
    allowed: momentOf(one.allowedAt),
    renewed: momentOrNull(one.renewedAt ?? 0),
    last_use: momentOrNull(activity.of(one.username, one.clientId).use),
    called: one.called,
  }));
  if (!options.json && views.length === 0 && process.stdout.isTTY) {
    print("No user has let in an app.");
    return;
  }
  const head = ["USERNAME", "CLIENT", "APP", "DATABASE", "MAY", "ALLOWED", "RENEWED", "LAST USE"];
  printList(views, options, head, ({ username, client, app, ...view }) => [
    ...[username, plainly(client), app === "" ? "-" : plainly(app), view.database],
    ...[view.read_only ? "read" : "change", view.allowed, view.renewed ?? "-"],
    view.last_use ?? "-",
  ]);
}

/** Ends the connections that `isMeant` names, and gives them back. */
function end(
  loaded: LoadedConfiguration,
  isMeant: (connection: Connection) => boolean,
): Promise<Connection[]> {
  const work = async (store: StateStore) => {
    const meant = (await connectionsOf(store)).filter(isMeant);
    for (const { grantId } of meant) await store.endGrant(grantId);
    const change = "application ended";
    const changes = meant.map(({ username: user, clientId: client }) => ({ change, user, client }));
    if (meant.length > 0) await noteChanges(loaded, changes);
    return meant;
  };
  return withState(loaded, work, []);
}

/**
 * Ends what a client was allowed, by everybody or by one user.
 *
 * @throws Error if it was not let in
 */
export async function endClient(
  loaded: LoadedConfiguration,
  clientId: string,
  username: string | undefined,
): Promise<void> {
  const isMeant = (one: Connection) =>
    one.clientId === clientId && (username === undefined || one.username === username);
  const ended = await end(loaded, isMeant);
  const whose = username === undefined ? "nobody has" : `${username} has not`;
  if (ended.length === 0) throw new Error(`${whose} let in the client ${plainly(clientId)}`);
  ended.forEach(printEnd);
}

/** Ends the family of an access token: all that came of the same consent. */
export async function endFamily(loaded: LoadedConfiguration, tokenId: string): Promise<void> {
  const ended = await end(loaded, (connection) => isTokenOf(connection, tokenId));
  ended.forEach(printEnd);
}

function printEnd({ username, clientId }: Connection): void {
  print(
    `Ended what ${username} has allowed the client ${plainly(clientId)}, with every token of it.`,
  );
}
