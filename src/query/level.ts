/** How much of the grammar there is: `core` is what every database that speaks it must know. */
export type Level = "core" | "full";
