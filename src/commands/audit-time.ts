import { InvalidArgumentError } from "commander";
import { moments, readMoment } from "../observe/audit-time.ts";

/** A flag that says a moment of the past, as epoch milliseconds. @throws InvalidArgumentError */
export function momentFlag(text: string): number {
  const moment = readMoment(text);
  if (moment === undefined) throw new InvalidArgumentError(`allowed: ${moments}`);
  return moment;
}
