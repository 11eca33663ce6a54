import type { StoredKey } from "./stored-key.ts";

/** A change to the keys that are held. */
export type KeyChange =
  | { readonly kind: "put"; readonly key: StoredKey }
  | { readonly kind: "delete"; readonly kid: string };

/**
 * Judges the keys, newest first, as they are when nobody else changes them, and says what to
 * change; throws a Refusal if the change may not be made.
 */
export type KeyPlan = (keys: readonly StoredKey[]) => Promise<readonly KeyChange[]>;

/**
 * Signing keys, wherever they are held for good: a directory of files is one such place
 * (`key-file.ts`), and what it looks like concerns nobody else.
 */
export interface KeyStore {
  /** Where it is, for messages. */
  readonly place: string;
  /**
   * Every key, newest first.
   *
   * @throws KeyFileError or UnsafeFileError if one of them cannot be used
   */
  read(): Promise<readonly StoredKey[]>;
  /** The names of the keys that are held, also of those that cannot be used. */
  names(): Promise<readonly string[]>;
  /** True if there is a key, or was one before. */
  hadKeys(): Promise<boolean>;
  /** Makes the changes that `plan` says, in their order. @throws Refusal from `plan` */
  change(plan: KeyPlan): Promise<void>;
  /** Calls `onChange` whenever the keys may have changed, until it is closed. */
  watch(onChange: () => void): { close(): Promise<void> };
}
