import { createHmac, timingSafeEqual } from "node:crypto";

/** Makes and checks the token that a form of an interaction carries. */
export interface FormGuard {
  tokenFor(interaction: string): string;
  isRight(interaction: string, token: string | undefined): boolean;
}

/**
 * A form's token is bound to the interaction, whose name is also its cookie: a page elsewhere can
 * neither read the token nor make the browser send it with a cookie of another interaction.
 */
export function createFormGuard(secret: Uint8Array): FormGuard {
  const digest = (interaction: string) =>
    createHmac("sha256", secret).update(`interaction:${interaction}`).digest();
  return {
    tokenFor: (interaction) => digest(interaction).toString("base64url"),
    isRight(interaction, token = "") {
      const given = Buffer.from(token, "base64url");
      const expected = digest(interaction);
      return given.length === expected.length && timingSafeEqual(given, expected);
    },
  };
}
