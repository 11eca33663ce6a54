import type { Program } from "../rig/program.ts";
import type { Algorithm } from "./world.ts";

/** A gateway that is measured. */
export interface System {
  readonly name: string;
  readonly port: number;
  /** By default `http`. */
  readonly scheme?: "http" | "https";
  readonly program: Pick<Program, "cpuSeconds" | "stop">;
  /** Which signature its tokens carry; undefined for a forward that looks at none. */
  readonly algorithm: Algorithm | undefined;
  /** What it looks at before it forwards. */
  readonly checks: "nothing" | "token" | "token and query";
  /** Bytes of the largest body that it can look into. */
  readonly largestBody: number;
}

/** The core that the measured gateway has; load and upstream share the other. */
export const GATEWAY_CORE = 0;
export const LOAD_CORE = 1;
export const MEGABYTE = 1_000_000;
/**
 * Seconds of load before a sample: many before the first, and some before each, since a compiler
 * forgets while the others have their turn.
 */
export function leadInSeconds(round: number): number {
  return round === 1 ? 5 : 1;
}
