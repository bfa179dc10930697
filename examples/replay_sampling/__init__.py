"""Random minibatches from a replay buffer that does not fit into memory.

`python -m examples.replay_sampling` writes a file of transitions, samples it in three ways by turns
(each in a process whose memory is a quarter of the file), and draws what came of it.
"""
