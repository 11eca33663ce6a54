import type { LiveAccess } from "../access/live.ts";
import type { LiveRevocations } from "../identity/revocations.ts";
import type { Membership } from "./member.ts";

type TellOthers = Membership["tellOthers"];

/**
 * The access file as it is in force here, whose reloads are over only when every other process of
 * the gateway has read it too: so the answer to a change is sent when it holds everywhere.
 */
export function accessInStep(own: LiveAccess, tellOthers: TellOthers): LiveAccess {
  return {
    get snapshot() {
      return own.snapshot;
    },
    get parsed() {
      return own.parsed;
    },
    get stale() {
      return own.stale;
    },
    subscribe: (listener) => own.subscribe(listener),
    async reload(expected) {
      await Promise.all([own.reload(expected), tellOthers("access")]);
    },
    close: () => own.close(),
  };
}

/** The revocations likewise: one is over when the token is refused everywhere. */
export function revocationsInStep(own: LiveRevocations, tellOthers: TellOthers): LiveRevocations {
  return {
    isRevoked: (token) => own.isRevoked(token),
    earliestIssue: (username) => own.earliestIssue(username),
    get users() {
      return own.users;
    },
    get stale() {
      return own.stale;
    },
    async revokeToken(token) {
      await own.revokeToken(token);
      await tellOthers("revocations");
    },
    async revokeUser(username, before) {
      await own.revokeUser(username, before);
      await tellOthers("revocations");
    },
    reload: () => own.reload(),
    close: () => own.close(),
  };
}
