import { epochSeconds } from "../clock.ts";
import { endOf } from "../identity/revocation-lines.ts";
import {
  type LiveRevocations,
  type Revocation,
  type RevocationStore,
  revocationOfUser,
} from "../identity/revocations.ts";
import type { StoreAccess } from "./access-store.ts";
import type { Query } from "./database.ts";
import { CLOCK_TOLERANCE_MS } from "./replica.ts";

/**
 * Seconds since 1970 by the clock that is furthest ahead, of this process, the store and all
 * replicas: a token of this very moment may have been issued by it.
 */
async function latestClock(query: Query): Promise<number> {
  const [row] = await query(
    `select extract(epoch from clock_timestamp())
      + greatest(0, coalesce(max(ahead), 0)) + $1 as latest
      from gatehouse.leases where expires > clock_timestamp()`,
    [CLOCK_TOLERANCE_MS / 1000],
  );
  return Math.max(epochSeconds(), Math.floor(Number(row?.latest)));
}

type Revoking = Omit<RevocationStore, "read">;

function revoking({ state, writer, replica, author }: StoreAccess): Revoking {
  async function add(revocationOf: (query: Query) => Promise<Revocation>): Promise<void> {
    replica?.requireReached();
    await writer.append(async (turn) => {
      const revocation = await revocationOf(turn.query);
      await turn.append({ change: { kind: "revocation", revocation }, ends: endOf(revocation) });
    }, author);
  }
  return {
    revokeToken: ({ tokenId, expiresAt }) => add(async () => ({ jti: tokenId, until: expiresAt })),
    revokeUser: (user, before) =>
      add(async (query) =>
        before === undefined
          ? revocationOfUser(state.revocations, user, await latestClock(query))
          : { user, before },
      ),
  };
}

/** The revocations of the store, for a command. */
export function revocationsInStore(store: StoreAccess): RevocationStore {
  const { state } = store;
  return {
    ...revoking(store),
    read: async () => Object.assign(state.revocations, { count: state.revocations.size }),
  };
}

/** The revocations of the store, in force at every replica. */
export function openRevocationStore(store: StoreAccess): LiveRevocations {
  const { state, replica } = store;
  return {
    ...revoking(store),
    isRevoked(token) {
      replica?.requireFresh();
      return state.revocations.isRevoked(token);
    },
    earliestIssue(username) {
      replica?.requireFresh();
      return state.revocations.earliestIssue(username);
    },
    get users() {
      return state.revokedUsers;
    },
    stale: false,
    async reload() {
      await replica?.poll();
    },
    async close() {},
  };
}
