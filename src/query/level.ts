/** How much of the grammar there is: `core` is what every database that speaks it must know. */
export type Level = "core" | "full";

/** What a refusal at the level `core` says of a word of the full grammar, behind what is allowed. */
export const fullAlone = '; it is of the full grammar ([query] level = "full")';
