/** Whose page this is: the token behind the session, and what its role permits. */
import { Signal } from "./signal.js";

const ROLES = ["read", "submit", "admin"];

/** `open` is null until the first answer has come; `role` is null where it is not known. */
export const session = new Signal({ open: null, name: null, role: null });

/** The server has answered: there is a session. */
export function sessionIsOpen(holder) {
  const { open, name, role } = session.value;
  const next = holder ?? { name, role };
  if (open && next.name === name && next.role === role) return;
  session.value = { open: true, name: next.name, role: next.role };
}

/** The server has answered that there is no session. */
export function sessionIsOver() {
  if (session.value.open !== false) session.value = { open: false, name: null, role: null };
}

/** Take the role from an answer that refuses an act for it. */
export function learnRole(problem) {
  const { open, name, role } = session.value;
  if (!ROLES.includes(problem.value) || problem.value === role) return;
  session.value = { open, name: problem.object ?? name, role: problem.value };
}

/**
 * Why the role may not do what another one may.
 * @param {"read"|"submit"|"admin"} needed
 * @returns {string|null} null: it may, as far as is known
 */
export function forbids(needed) {
  const { name, role } = session.value;
  if (role === null || ROLES.indexOf(role) >= ROLES.indexOf(needed)) return null;
  return `The token ${name} has the role ${role}; this needs ${needed}.`;
}
