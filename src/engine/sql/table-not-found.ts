import { didYouMean } from "../../suggestion.ts";
import { EngineRefusal } from "../refusal.ts";

/** Tables that are looked through for one of a name like the one that is not there. */
export const MOST_COMPARED = 1000;

/** The refusal of a table that is not there; `others` are those that are. */
export function tableNotFound(
  name: string,
  database: string,
  others: readonly string[],
): EngineRefusal {
  const near = didYouMean(name, others);
  return new EngineRefusal("table_not_found", `There is no table ${name} in ${database}${near}`);
}
