import type { Configuration } from "../config/schema.ts";
import { configuredCosts } from "../identity/costs.ts";
import { type Hashing, type HashingHere, openHashing } from "../identity/hashing.ts";
import {
  createLoginThrottle,
  type LoginThrottle,
  type ThrottleBounds,
} from "../identity/throttle.ts";
import { type SessionRegister, Sessions } from "../mcp/proxy/sessions.ts";
import { OpenStreams, type StreamRegister } from "../mcp/proxy/streams.ts";
import { createAddressLimit, type OpenAddressLimit } from "../oauth/server/address-limit.ts";

/**
 * What there is once in a gateway, however many processes serve it: what is counted over all
 * requests, and the process that hashes.
 */
export interface Shared {
  readonly throttle: LoginThrottle;
  readonly hashing: Hashing;
  readonly openLimit: OpenAddressLimit;
  /** Whose the sessions of a foreign MCP server are. */
  readonly sessions: SessionRegister;
  readonly streams: StreamRegister;
  /** Takes over bounds that have changed; those that another process keeps are that one's to change. */
  configure(configuration: Configuration): void;
}

/** What of it can be held in one process alone. */
export interface SharedHere extends Shared {
  readonly hashing: HashingHere;
  readonly sessions: Sessions;
  readonly streams: OpenStreams;
}

function throttleBounds({ auth }: Configuration): ThrottleBounds {
  return {
    perUserAndAddress: auth.max_failures_per_user_and_address,
    perAddress: auth.max_failures_per_address,
    window: auth.failure_window,
  };
}

/** Makes all of it in this process; `hashing` must be closed. */
export function createShared(configuration: Configuration): SharedHere {
  const throttle = createLoginThrottle(throttleBounds(configuration));
  return {
    throttle,
    hashing: openHashing(configuredCosts(configuration)),
    openLimit: (_name, bounds) => createAddressLimit(bounds),
    sessions: new Sessions(),
    streams: new OpenStreams(),
    configure: (next) => throttle.change(throttleBounds(next)),
  };
}
