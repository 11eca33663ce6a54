import type { KeyStore } from "../../../core/identity/key-store.ts";

/** A stored record. `consumed` is the epoch second of its first use. */
interface StoredRecord {
  readonly payload: string;
  readonly consumed: number | undefined;
}

/** `expires` is in epoch seconds. */
export interface NewRecord {
  readonly payload: string;
  readonly grantId?: string | undefined;
  /** Secondary key. For a registered client it is the address that registered it. */
  readonly uid?: string | undefined;
  readonly expires: number;
}

interface GrantRow {
  readonly id: string;
  readonly payload: string;
  readonly renewed: number | undefined;
  readonly called: readonly string[];
}

/**
 * Records of the authorization server. Methods reject with a Refusal while the storage is
 * unavailable. A model is the library's name for a kind of record. Expired records are not found.
 */
export interface RecordStore {
  /** Inserts or replaces a record. A replaced record stays consumed. */
  put(model: string, id: string, record: NewRecord): Promise<void>;
  find(model: string, id: string): Promise<StoredRecord | undefined>;
  findByUid(model: string, uid: string): Promise<StoredRecord | undefined>;
  /**
   * Marks a record as used. False if it was already used.
   *
   * @param reuse seconds around the first use in which another use is accepted. Default: none.
   */
  consume(model: string, id: string, reuse?: number): Promise<boolean>;
  /**
   * Takes an id until `expires`, in one step and by the clock of the storage. False while another
   * process has it.
   */
  claim(model: string, id: string, expires: number): Promise<boolean>;
  remove(model: string, id: string): Promise<void>;
  /** Removes a model's records under a grant, but not the grant. */
  removeByGrant(model: string, grantId: string): Promise<void>;
  /** Extends the lifetime of a client that a user has allowed. Never shortens it. */
  keepClient(id: string, expires: number): Promise<void>;
  /**
   * Makes room for one more client when a limit is reached. Of used clients, the least recently
   * used is removed. Of those that no user has allowed yet, the oldest from the address with the
   * most of them.
   */
  makeRoom(bounds: { readonly unused: number; readonly used: number }): Promise<void>;
}

/** Storage of the authorization server. */
export interface StateStore extends RecordStore {
  /** Removes a grant with its records. */
  endGrant(grantId: string): Promise<void>;
  grants(username?: string): Promise<readonly GrantRow[]>;
  noteCall(grantId: string, tool: string, expires: number): Promise<void>;
  /** @param until expiry of the token in epoch seconds */
  revokeToken(tokenId: string, until: number): Promise<void>;
  /** Synchronous, because every request with an access token calls it. */
  isTokenRevoked(tokenId: string): boolean;
  /** Synchronous too. May also be true for expired and unknown grants. */
  isGrantEnded(grantId: string): boolean;
  /** The secret of this name. Stores `made` if it does not exist. */
  secret(name: string, made: Uint8Array): Promise<Uint8Array>;
  close(): Promise<void>;
}

/** Uses up a record. @returns its payload, and undefined if it is missing or was used */
export async function takeRecord(
  store: StateStore,
  model: string,
  id: string,
): Promise<string | undefined> {
  const found = await store.find(model, id);
  if (found === undefined || !(await store.consume(model, id))) return undefined;
  await store.remove(model, id);
  return found.payload;
}

/** The name of the key among the secrets of a store. */
export const SEAL_KEY = "refresh tokens";

export interface AuthorizationState {
  readonly store: StateStore;
  readonly keys: KeyStore;
  /** The key that encrypts refresh tokens of identity providers: 32 bytes, created on first use. */
  sealKey(): Promise<Uint8Array>;
}
