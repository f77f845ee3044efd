"""What a model repository says: what it holds, what is wrong with it, what it needs.

`load` reads, `check_table` judges, `report` carries the verdict from the pod to the operator.
"""
