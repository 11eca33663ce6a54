import type { Program } from "../rig/program.ts";
import type { Algorithm } from "./world.ts";

/** A gateway to measure. */
export interface System {
  readonly name: string;
  readonly port: number;
  /** By default `http`. */
  readonly scheme?: "http" | "https";
  readonly program: Pick<Program, "cpuSeconds" | "stop">;
  /** Signature algorithm of its tokens; undefined if it verifies none. */
  readonly algorithm: Algorithm | undefined;
  /** Checks before the forward. */
  readonly checks: "nothing" | "token" | "token and query";
  /** Bytes of the largest body that it can inspect. */
  readonly largestBody: number;
}

/** The core of the measured gateway; load and upstream share the other one. */
export const GATEWAY_CORE = 0;
export const LOAD_CORE = 1;
export const MEGABYTE = 1_000_000;
/**
 * Seconds of load before a sample: many before the first, and some before each later one, since optimized
 * code is dropped while other systems have their turn.
 */
export function leadInSeconds(round: number): number {
  return round === 1 ? 5 : 1;
}
