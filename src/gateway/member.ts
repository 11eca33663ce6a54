import type { UpstreamTarget } from "../upstream/target.ts";
import type { Shared } from "./shared.ts";

/** A file that every process of a gateway keeps in force for itself. */
export type SharedFile = "access" | "revocations";

/** A process's place among those that serve one gateway together. */
export interface Membership {
  /** From 1. */
  readonly number: number;
  /** True for the one that makes what a first start makes. */
  readonly isFirst: boolean;
  /** What there is once for all of them. */
  readonly shared: Shared;
  /** The engine that serves all of them; started by whoever asks first. */
  engine(): Promise<UpstreamTarget>;
  /**
   * The port to listen on, to be asked for right before that; 0 for any free one.
   *
   * @throws Error if another gateway or program has it
   */
  claimPort(): Promise<number>;
  /** Has all others read a file again; resolves when what is on disk is in force everywhere. */
  tellOthers(file: SharedFile): Promise<void>;
}
