import { createHash } from "node:crypto";
import { type Adapter, type AdapterPayload, errors } from "oidc-provider";
import { epochSeconds } from "../../clock.ts";
import { Refusal } from "../../refusal.ts";
import { lifetimes } from "./protocol.ts";
import type { StateStore } from "./state-store.ts";

/** Models whose id is itself a credential. Only a hash of it is stored. */
const credentials: ReadonlySet<string> = new Set(["AuthorizationCode", "RefreshToken"]);

/**
 * Seconds after its first use in which a credential is accepted again. Models that are missing here
 * allow no reuse.
 */
const reuse = new Map([["RefreshToken", lifetimes.refreshReuse]]);
const NEVER = -1;

/** The absolute difference, so that setting the clock back extends nothing. */
function isWithin(seconds: number, moment: number): boolean {
  return Math.abs(epochSeconds() - moment) <= seconds;
}

/** Payloads need no validation, because only this adapter writes them. */
function parsePayload(text: string): AdapterPayload {
  return JSON.parse(text);
}

/** Reports an unavailable store to the library, without a redirect to the client. */
export class StateUnavailable extends errors.TemporarilyUnavailable {
  constructor(refusal: Refusal) {
    super(refusal.message, { cause: refusal });
    this.status = refusal.status;
    this.statusCode = refusal.status;
    this.allow_redirect = false;
  }
}

async function told<Answer>(answer: Promise<Answer>): Promise<Answer> {
  try {
    return await answer;
  } catch (error) {
    throw error instanceof Refusal ? new StateUnavailable(error) : error;
  }
}

class StoreAdapter implements Adapter {
  readonly #model: string;
  readonly #reuse: number;
  readonly #store: StateStore;

  constructor(model: string, store: StateStore) {
    this.#model = model;
    this.#reuse = reuse.get(model) ?? NEVER;
    this.#store = store;
  }

  #key(id: string): string {
    if (!credentials.has(this.#model)) return id;
    return createHash("sha256").update(id).digest("base64url");
  }

  async upsert(id: string, payload: AdapterPayload, expiresIn = lifetimes.forever): Promise<void> {
    // A session without a login has nothing to keep, and anyone can create them.
    if (this.#model === "Session" && payload.accountId === undefined) return;
    const { jti, consumed: _, ...rest } = payload;
    const kept = credentials.has(this.#model) ? rest : { jti, ...rest };
    const record = {
      payload: JSON.stringify(kept),
      grantId: payload.grantId,
      uid: payload.uid,
      expires: epochSeconds() + expiresIn,
    };
    await told(this.#store.put(this.#model, this.#key(id), record));
  }

  async find(id: string): Promise<AdapterPayload | undefined> {
    const found = await told(this.#store.find(this.#model, this.#key(id)));
    if (found === undefined) return undefined;
    const payload = parsePayload(found.payload);
    if (credentials.has(this.#model)) payload.jti = id;
    const { consumed } = found;
    const isUsable = consumed === undefined || isWithin(this.#reuse, consumed);
    return isUsable ? payload : { ...payload, consumed };
  }

  async findByUid(uid: string): Promise<AdapterPayload | undefined> {
    const found = await told(this.#store.findByUid(this.#model, uid));
    return found === undefined ? undefined : parsePayload(found.payload);
  }

  /** The device flow is not offered, so there are no user codes. */
  async findByUserCode(): Promise<undefined> {
    return undefined;
  }

  /**
   * @throws InvalidGrant if it was already used, so that only one of two simultaneous uses succeeds
   */
  async consume(id: string): Promise<void> {
    if (!(await told(this.#store.consume(this.#model, this.#key(id), this.#reuse)))) {
      throw new errors.InvalidGrant("already used");
    }
  }

  async destroy(id: string): Promise<void> {
    await told(this.#store.remove(this.#model, this.#key(id)));
  }

  async revokeByGrantId(grantId: string): Promise<void> {
    await told(this.#store.removeByGrant(this.#model, grantId));
  }
}

export function createAdapterFactory(store: StateStore): (model: string) => Adapter {
  return (model) => new StoreAdapter(model, store);
}
