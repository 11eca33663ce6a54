import { type Adapter, type AdapterPayload, errors } from "oidc-provider";
import { epochSeconds } from "../../../core/base/clock.ts";
import { Refusal } from "../../../core/base/refusal.ts";
import { hashId } from "../../../core/base/sealed-bytes.ts";
import { lifetimes } from "./protocol.ts";
import type { StateStore } from "./state-store.ts";

/** Reports an unavailable store to the library, without a redirect to the client. */
export class StateUnavailable extends errors.TemporarilyUnavailable {
  constructor(refusal: Refusal) {
    super(refusal.message, { cause: refusal });
    this.status = refusal.status;
    this.statusCode = refusal.status;
    this.allow_redirect = false;
  }
}

/** Turns refusals of the store into errors of the library. */
async function fromStore<Answer>(answer: Promise<Answer>): Promise<Answer> {
  try {
    return await answer;
  } catch (error) {
    throw error instanceof Refusal ? new StateUnavailable(error) : error;
  }
}

export function createAdapter(model: string, store: StateStore): Adapter {
  // The id is a credential, so only a hash of it is stored.
  const isCredential = model === "AuthorizationCode" || model === "RefreshToken";
  const storedKey = (id: string) => (isCredential ? hashId(id) : id);
  /** Seconds after its first use in which a record is accepted again. */
  const reuse = model === "RefreshToken" ? lifetimes.refreshReuse : -1;

  return {
    async upsert(id, payload, expiresIn = lifetimes.forever) {
      // Anyone can create sessions without a login, so they are not stored.
      if (model === "Session" && payload.accountId === undefined) return;
      const { jti, consumed: _, ...rest } = payload;
      const record = {
        payload: JSON.stringify(isCredential ? rest : { jti, ...rest }),
        grantId: payload.grantId,
        uid: payload.uid,
        // The `exp` of a client's assertion need not be a whole number (RFC 7519, section 2).
        expires: epochSeconds() + Math.ceil(expiresIn),
      };
      await fromStore(store.put(model, storedKey(id), record));
      // The library has found no record, but two requests at once would both find none.
      const isReplay = model === "ReplayDetection" && !(await fromStore(store.consume(model, id)));
      if (isReplay) throw new errors.InvalidClientAuth("client assertion used twice");
    },
    async find(id) {
      const found = await fromStore(store.find(model, storedKey(id)));
      if (found === undefined) return undefined;
      // Payloads need no validation, because only this adapter writes them.
      const payload: AdapterPayload = JSON.parse(found.payload);
      if (isCredential) payload.jti = id;
      const { consumed } = found;
      // The absolute difference, so that a clock that is set back extends nothing.
      const isUsable = consumed === undefined || Math.abs(epochSeconds() - consumed) <= reuse;
      return isUsable ? payload : { ...payload, consumed };
    },
    async findByUid(uid) {
      const found = await fromStore(store.findByUid(model, uid));
      return found && JSON.parse(found.payload);
    },
    /** The device flow is not offered, so there are no user codes. */
    async findByUserCode() {
      return undefined;
    },
    /** @throws InvalidGrant if already used, so that only one of two simultaneous uses succeeds */
    async consume(id) {
      const isFirst = await fromStore(store.consume(model, storedKey(id), reuse));
      if (!isFirst) throw new errors.InvalidGrant("already used");
    },
    destroy: (id) => fromStore(store.remove(model, storedKey(id))),
    revokeByGrantId: (grantId) => fromStore(store.removeByGrant(model, grantId)),
  };
}
