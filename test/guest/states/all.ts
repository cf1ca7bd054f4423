// The list of all starting states; tests loop over it.

import { emptyDirectory, foreignFiles, fullDirectory, narrowFile } from './files.js';
import { bare, danglingLinks, danglingVersionedLinks, loopingLinks, wrongLibrary } from './links.js';
import { mixed } from './mixed.js';
import { debian535, debian550, debianManual } from './nvidia-debian.js';
import { copiedLibraries, copiedTwice, runInstaller, ubuntuPackage } from './nvidia-ubuntu.js';
import { earlyDropIn, foreignCurrent, foreignStore, lateDropIn } from './settings.js';
import type { StartingState } from './state.js';

export const startingStates: readonly StartingState[] = [
  bare,
  danglingLinks,
  danglingVersionedLinks,
  loopingLinks,
  wrongLibrary,
  foreignFiles,
  narrowFile,
  emptyDirectory,
  fullDirectory,
  debian535,
  debian550,
  debianManual,
  runInstaller,
  copiedLibraries,
  copiedTwice,
  ubuntuPackage,
  earlyDropIn,
  lateDropIn,
  foreignStore,
  foreignCurrent,
  mixed,
];
