/** Flags of a program that measures in rounds, for `parseArgs`. */
export const effortFlags = {
  rounds: { type: "string", default: "5" },
  seconds: { type: "string", default: "3" },
  json: { type: "boolean", default: false },
} as const;
